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

DoctorOptions exam_of(const DoctorSettings& settings) {
  return {settings.prefix, settings.ttl, settings.replicas, Topology::single};
}

struct Diagnose {
  DoctorOptions exam;
  const DoctorSettings& settings;

  Diagnosis operator()(const LocalTarget& local) const {
    return diagnose_directory(directory_of(local));
  }
  Diagnosis operator()(const Endpoint& server) const { return diagnose_server(server, exam); }
  Diagnosis operator()(const SentinelTarget& target) const {
    return diagnose_sentinels(target.sentinels, target.master_name, target.master, exam);
  }
  Diagnosis operator()(const ClusterTarget& target) const {
    return diagnose_cluster(target.seeds, exam);
  }
  Diagnosis operator()(const QuorumTarget& target) const {
    return diagnose_quorum(target.servers, exam);
  }
  Diagnosis operator()(const SqlTarget& target) const {
    return diagnose_database({target.url, target.shown, target.password, target.mysql}, exam,
                             [this] { return open_store(settings); });
  }
  Diagnosis operator()(const EtcdTarget& target) const {
    return diagnose_etcd(target.servers, target.name(), exam,
                         [this] { return open_store(settings); });
  }
  Diagnosis operator()(const ZooKeeperTarget& target) const {
    return diagnose_zookeeper(target.servers, target.name(), target.chroot, session_for(exam.ttl),
                              exam, [this] { return open_store(settings); });
  }
};

struct AclLines {
  DoctorOptions exam;

  std::string operator()(const LocalTarget&) const {
    throw Error(ErrorKind::usage,
                "--acl: locks on this host need none: it goes with a Redis server");
  }
  std::string operator()(const Endpoint& server) const { return acl_line(exam, server) + "\n"; }
  std::string operator()(const SentinelTarget& target) const {
    DoctorOptions with_role = exam;
    with_role.topology = Topology::sentinel;
    return acl_line(with_role, target.master) + "\n" + sentinel_acl_line(target.sentinels.front()) +
           "\n";
  }
  std::string operator()(const ClusterTarget& target) const {
    DoctorOptions in_cluster = exam;
    in_cluster.topology = Topology::cluster;
    return acl_line(in_cluster, target.seeds.front()) + "\n";
  }
  std::string operator()(const QuorumTarget& target) const {
    DoctorOptions in_quorum = exam;
    in_quorum.topology = Topology::quorum;
    return acl_line(in_quorum, target.servers.front()) + "\n";
  }
  std::string operator()(const SqlTarget& target) const {
    return target.mysql ? mysql_rights() : postgres_rights(target.url);
  }
  std::string operator()(const EtcdTarget& target) const {
    return etcd_rights(target.servers, exam.prefix);
  }
  std::string operator()(const ZooKeeperTarget& target) const {
    return zookeeper_rights(target.servers, target.chroot);
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
  const DoctorOptions exam = exam_of(settings);
  if (settings.schema) return create_table(settings);
  if (settings.acl) {
    print(std::visit(AclLines{exam}, settings.server));
    return 0;
  }
  const Diagnosis diagnosis = std::visit(Diagnose{exam, settings}, settings.server);
  if (!settings.quiet) {
    print(settings.json ? diagnosis_json(diagnosis)
                        : diagnosis_text(diagnosis, screen_at(STDOUT_FILENO)));
  }
  return static_cast<int>(diagnosis.verdict());
}

}  // namespace dlock
