#include "commands/open_store.hpp"

#include "base/duplicate_servers.hpp"
#include "base/duration.hpp"
#include "cas/cas_store.hpp"
#include "commands/tracing_store.hpp"
#include "compat/compat_store.hpp"
#include "compat/redlock_store.hpp"
#include "etcd/open_etcd.hpp"
#include "local/local_store.hpp"
#include "quorum/quorum_store.hpp"
#include "quorum/threaded_node_clients.hpp"
#include "redis/cluster_store.hpp"
#include "redis/redis_member.hpp"
#include "redis/redis_store.hpp"
#include "redis/sentinel_resolver.hpp"
#include "sql/open_database.hpp"
#include "zookeeper/open_zookeeper.hpp"

namespace dlock {
namespace {

/// What lives on servers is a Store, FenceRegister and Latches at once.
template <typename As>
std::unique_ptr<As> open_servers(const Settings& settings, const LinkListener& on_link) {
  if (const auto* database = std::get_if<SqlTarget>(&settings.server)) {
    auto backend = database->mysql
                       ? open_mysql(*database->mysql, database->shown, database->password)
                       : open_postgres(database->url, database->shown, database->password);
    return std::make_unique<CasStore>(std::move(backend), settings.prefix);
  }
  if (const auto* etcd = std::get_if<EtcdTarget>(&settings.server)) {
    return std::make_unique<CasStore>(open_etcd(etcd->servers, etcd->name()), settings.prefix);
  }
  if (const auto* zookeeper = std::get_if<ZooKeeperTarget>(&settings.server)) {
    return std::make_unique<CasStore>(
        open_zookeeper(zookeeper->servers, zookeeper->name(), zookeeper->chroot, settings.prefix,
                       session_for(settings.ttl.value_or(usual_session))),
        settings.prefix);
  }
  RedisTerms terms{settings.prefix, settings.replicas};
  terms.may_move = !std::holds_alternative<Endpoint>(settings.server);
  terms.on_link = on_link;
  if (const auto* one = std::get_if<Endpoint>(&settings.server)) {
    return std::make_unique<RedisStore>(std::make_unique<FixedEndpoint>(*one), terms);
  }
  if (const auto* target = std::get_if<SentinelTarget>(&settings.server)) {
    return std::make_unique<RedisStore>(
        std::make_unique<SentinelResolver>(target->sentinels, target->master_name, target->master),
        terms);
  }
  if (const auto* target = std::get_if<ClusterTarget>(&settings.server)) {
    return std::make_unique<ClusterStore>(target->seeds, terms);
  }
  const auto& servers = std::get<QuorumTarget>(settings.server).servers;
  const auto doubles = std::make_shared<DuplicateServers>(servers);
  const auto open = [servers, doubles, prefix = settings.prefix, on_link] {
    std::vector<std::unique_ptr<Member>> members;
    for (std::size_t i = 0; i < servers.size(); ++i) {
      members.push_back(std::make_unique<RedisMember>(
          servers[i], prefix, on_link, [doubles, i](std::vector<std::string> addresses) {
            doubles->resolved(i, std::move(addresses));
          }));
    }
    return members;
  };
  return std::make_unique<QuorumStore>(std::make_unique<ThreadedNodeClients>(open), doubles);
}

/// What lives on this host, too, but for FenceRegister.
template <typename As>
std::unique_ptr<As> open(const Settings& settings, const LinkListener& on_link) {
  if (const auto* target = std::get_if<LocalTarget>(&settings.server)) {
    return std::make_unique<LocalStore>(directory_of(*target));
  }
  return open_servers<As>(settings, on_link);
}

/// The same, or the keys of another library.
StorePtr open_any(const Settings& settings, const LinkListener& on_link) {
  if (!settings.layout) return open<Store>(settings, on_link);
  if (const auto* target = std::get_if<QuorumTarget>(&settings.server)) {
    std::vector<StorePtr> nodes;
    for (const Endpoint& server : target->servers) {
      RedisTerms terms;
      terms.on_link = on_link;
      auto node = one_server(std::make_unique<FixedEndpoint>(server), terms);
      nodes.push_back(std::make_unique<CompatStore>(*settings.layout, std::move(node)));
    }
    return std::make_unique<RedlockStore>(std::move(nodes));
  }
  return std::make_unique<CompatStore>(*settings.layout, open_key_servers(settings, on_link));
}

}  // namespace

std::unique_ptr<KeyServers> open_key_servers(const Settings& settings,
                                             const LinkListener& on_link) {
  RedisTerms terms;
  terms.on_link = on_link;
  if (const auto* one = std::get_if<Endpoint>(&settings.server)) {
    return one_server(std::make_unique<FixedEndpoint>(*one), terms);
  }
  if (const auto* target = std::get_if<ClusterTarget>(&settings.server)) {
    return cluster_servers(target->seeds, terms);
  }
  const auto& target = std::get<SentinelTarget>(settings.server);
  terms.may_move = true;
  return one_server(
      std::make_unique<SentinelResolver>(target.sentinels, target.master_name, target.master),
      terms);
}

StorePtr open_store(const Settings& settings) { return open_any(settings, {}); }

StorePtr open_store(const Settings& settings, const Log& log) {
  if (!settings.verbose) return open_store(settings);
  const auto on_link = [log](const Endpoint& to, std::chrono::nanoseconds took) {
    tell_step(log, "connected to " + to.name() + " in " + exact_duration(took));
  };
  return told(open_any(settings, on_link), log);
}

std::unique_ptr<Latches> open_latches(const Settings& settings) {
  return open<Latches>(settings, {});
}

std::unique_ptr<FenceRegister> open_seals(const Settings& settings) {
  return open_servers<FenceRegister>(settings, {});
}

DirectorySettings directory_of(const LocalTarget& target) {
  if (target.dir) return {*target.dir, false};
  return {default_directory(), true};
}

int for_each_key(const std::vector<LockKey>& keys, const Log& log,
                 const std::function<ExitCode(const LockKey&)>& body) {
  ExitCode first = ExitCode::ok;
  for (const LockKey& key : keys) {
    ExitCode code = ExitCode::ok;
    try {
      code = body(key);
    } catch (const Error& error) {
      log.error(error.what());
      code = exit_code(error.trouble());
    }
    if (first == ExitCode::ok) first = code;
    // Nothing of the other keys can be had from a server that does not answer.
    if (code == ExitCode::unavailable || code == ExitCode::denied) break;
  }
  return static_cast<int>(first);
}

}  // namespace dlock
