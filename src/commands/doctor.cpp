#include <unistd.h>

#include "base/error.hpp"
#include "commands/commands.hpp"
#include "commands/open_store.hpp"
#include "doctor/checks.hpp"
#include "doctor/database_checks.hpp"
#include "doctor/diagnose.hpp"
#include "doctor/etcd.hpp"
#include "doctor/rights.hpp"
#include "doctor/zookeeper.hpp"
#include "output/diagnosis.hpp"
#include "zookeeper/zookeeper_backend.hpp"

namespace dlock {
namespace {

DoctorOptions options_of(const DoctorSettings& settings) {
  return {settings.prefix, settings.ttl, settings.replicas, Topology::single};
}

struct Diagnose {
  DoctorOptions options;
  const DoctorSettings& settings;

  Diagnosis operator()(const LocalTarget& local) const {
    return diagnose_directory(directory_of(local));
  }
  Diagnosis operator()(const Endpoint& server) const { return diagnose_server(server, options); }
  Diagnosis operator()(const SentinelTarget& target) const {
    return diagnose_sentinels(target.sentinels, target.master_name, target.master, options);
  }
  Diagnosis operator()(const ClusterTarget& target) const {
    return diagnose_cluster(target.seeds, options);
  }
  Diagnosis operator()(const QuorumTarget& target) const {
    return diagnose_quorum(target.servers, options);
  }
  Diagnosis operator()(const SqlTarget& target) const {
    return diagnose_database({target.url, target.shown, target.password, target.mysql}, options,
                             [this] { return open_store(settings); });
  }
  Diagnosis operator()(const EtcdTarget& target) const {
    return diagnose_etcd(target.servers, target.name(), options,
                         [this] { return open_store(settings); });
  }
  Diagnosis operator()(const ZooKeeperTarget& target) const {
    return diagnose_zookeeper(target.servers, target.name(), target.chroot,
                              session_for(options.ttl), options,
                              [this] { return open_store(settings); });
  }
};

struct AclLines {
  DoctorOptions options;

  std::string operator()(const LocalTarget&) const {
    throw Error(ErrorKind::usage,
                "--acl: locks on this host need none: it goes with a Redis server");
  }
  std::string operator()(const Endpoint& server) const { return acl_line(options, server) + "\n"; }
  std::string operator()(const SentinelTarget& target) const {
    return acl_line(with(Topology::sentinel), target.master) + "\n" +
           sentinel_acl_line(target.sentinels.front()) + "\n";
  }
  std::string operator()(const ClusterTarget& target) const {
    return acl_line(with(Topology::cluster), target.seeds.front()) + "\n";
  }
  std::string operator()(const QuorumTarget& target) const {
    return acl_line(with(Topology::quorum), target.servers.front()) + "\n";
  }
  std::string operator()(const SqlTarget& target) const {
    return target.mysql ? mysql_rights() : postgres_rights(target.url);
  }
  std::string operator()(const EtcdTarget& target) const {
    return etcd_rights(target.servers, options.prefix);
  }
  std::string operator()(const ZooKeeperTarget& target) const {
    return zookeeper_rights(target.servers, target.chroot);
  }

 private:
  DoctorOptions with(Topology topology) const {
    DoctorOptions in = options;
    in.topology = topology;
    return in;
  }
};

/// Creates the table of a database: a store does so before it reads its first record.
int create_table(const DoctorSettings& settings) {
  const auto* database = std::get_if<SqlTarget>(&settings.server);
  if (database == nullptr) {
    throw_usage("--schema: only databases need it: it goes with postgres:// and mysql://");
  }
  open_store(settings)->inspect({{scratch_key()}, {}}, short_call());
  if (!settings.quiet) print(database->shown + ": the table dlock is there\n");
  return 0;
}

}  // namespace

int carry_out(const DoctorSettings& settings, const Log&) {
  const DoctorOptions options = options_of(settings);
  if (settings.schema) return create_table(settings);
  if (settings.acl) {
    print(std::visit(AclLines{options}, settings.server));
    return 0;
  }
  const Diagnosis diagnosis = std::visit(Diagnose{options, settings}, settings.server);
  if (!settings.quiet) {
    print(settings.json ? diagnosis_json(diagnosis)
                        : diagnosis_text(diagnosis, screen_at(STDOUT_FILENO)));
  }
  return static_cast<int>(diagnosis.verdict());
}

}  // namespace dlock
