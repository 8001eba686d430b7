#include "commands/open_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <type_traits>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "cas/cas_store.hpp"
#include "compat/compat_store.hpp"
#include "etcd/etcd_backend.hpp"
#include "k8s/kube_backend.hpp"
#include "local/local_store.hpp"
#include "lock/store.hpp"
#include "memcached/memcached.hpp"
#include "output/log.hpp"
#include "output/sentences.hpp"
#include "quorum/node_threads.hpp"
#include "quorum/quorum_store.hpp"
#include "redis/cluster_router.hpp"
#include "redis/redis_connection.hpp"
#include "redis/redis_store.hpp"
#include "s3/s3_backend.hpp"
#include "sql/database.hpp"
#include "zookeeper/zookeeper_backend.hpp"

namespace dlock {
namespace {

/// Writes a line for -v about a step, or drops it if stderr would block: a thread that renews a
/// lease must not wait for a reader.
void report_step(const Log& log, const std::string& text) {
  if (takes_a_line(STDERR_FILENO)) log.detail(text);
}

/// The time that a step took: `0.4ms`, `12.3ms`; from one second on like human_duration().
std::string exact_duration(std::chrono::nanoseconds span) {
  if (span >= std::chrono::seconds(1))
    return human_duration(std::chrono::floor<milliseconds>(span));
  char text[48];
  std::snprintf(text, sizeof text, "%.1fms", static_cast<double>(span.count()) / 1e6);
  return text;
}

/// The time that a step took, for the end of its line.
std::string since(Deadline begun) { return " in " + exact_duration(BootClock::now() - begun); }

std::string answer_text(const Answer& answer, bool waits) {
  if (const auto* grant = std::get_if<Grant>(&answer)) {
    const bool leased = grant->lease.valid_until != never;
    return "granted" + fence_text(grant->fence) +
           (leased ? ", lease " + human_duration(grant->lease.length) : "");
  }
  const auto& refusal = std::get<Refusal>(answer);
  if (refusal.why != Refusal::Reason::held) return "refused";
  std::string held =
      "held by " + std::to_string(refusal.holders) + (refusal.holders == 1 ? " owner" : " owners");
  if (!waits) return held;
  const std::string place =
      refusal.unordered ? "" : "place " + std::to_string(refusal.ahead + 1) + ", ";
  return place + held + ", asking again in " + human_duration(refusal.ask_again_in) +
         " at the latest";
}

/// A store with a trace: for each step, the request, the answer and the time it took. Any thread
/// may use it.
class TracingStore final : public Store {
 public:
  TracingStore(StorePtr store, const Log& log) : store_(std::move(store)), log_(log) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override {
    const auto begun = BootClock::now();
    auto answer = store_->acquire(claim, ask, call_options);
    report_step(log_, "asked " + name() + " for " + escaped(claim.key.text) + since(begun) + ": " +
                          answer_text(answer, ask.wait));
    return answer;
  }
  bool waiter_asks_again() const override { return store_->waiter_asks_again(); }
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override {
    const auto begun = BootClock::now();
    Wake wake = store_->sleep(claim, until, cancel_fd);
    const std::string key = escaped(claim.key.text);
    if (wake.why == Wake::Reason::granted)
      report_step(log_, "told that " + key + " is ours" + since(begun));
    if (wake.why == Wake::Reason::changed)
      report_step(log_, "told that " + key + " may be free earlier" + since(begun));
    return wake;
  }
  Renewed renew(const Claim& claim, const RenewalOptions& terms,
                const CallOptions& call_options) override {
    const auto begun = BootClock::now();
    auto renewed = store_->renew(claim, terms, call_options);
    if (renewed.grant) report_step(log_, kept_text(claim.key, *renewed.grant) + since(begun));
    return renewed;
  }
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override {
    const auto begun = BootClock::now();
    auto result = store_->release(claim, how, call_options);
    const std::string what = result.outcome == Released::yes          ? "released "
                             : result.outcome == Released::left_queue ? "left the queue of "
                                                                      : "did not hold ";
    report_step(log_, what + escaped(claim.key.text) + since(begun));
    return result;
  }
  std::vector<Holder> evict(const LockKey& key, const Eviction& how,
                            const CallOptions& call_options) override {
    const auto begun = BootClock::now();
    auto evicted = store_->evict(key, how, call_options);
    const std::string what = how.asks ? " to stop the holders of " : " to free ";
    report_step(log_, "asked " + name() + what + escaped(key.text) + since(begun));
    return evicted;
  }
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override {
    const auto begun = BootClock::now();
    auto states = store_->inspect(query, call_options);
    report_step(log_, "asked " + name() + " how things stand" + since(begun));
    return states;
  }
  void suspend(Suspension why) override { store_->suspend(why); }
  std::vector<int> connections() const override { return store_->connections(); }
  HostView* host_view() override { return store_->host_view(); }
  std::vector<Error> take_troubles() override { return store_->take_troubles(); }
  bool may_be_taken_late(const Claim& claim) const override {
    return store_->may_be_taken_late(claim);
  }
  std::string name() const override { return store_->name(); }

 private:
  static std::string kept_text(const LockKey& key, const Grant& grant) {
    if (grant.lease.valid_until == never) return "found " + escaped(key.text) + " still ours";
    return "renewed " + escaped(key.text) + " for " + human_duration(grant.lease.length);
  }

  StorePtr store_;
  const Log log_;
};

/// The servers of a majority, each opened by `node`.
template <typename Node>
std::unique_ptr<NodeClients> node_clients(const std::vector<Endpoint>& servers, const Node& node) {
  return std::make_unique<ThreadedNodeClients>([servers, node] {
    std::vector<std::unique_ptr<Member>> members;
    for (const Endpoint& server : servers) members.push_back(node(server));
    return members;
  });
}

/// An engine is a Store, a FenceRegister and Latches at once, except that a majority has no
/// latches, and this host no FenceRegister.
template <typename As>
std::unique_ptr<As> open(const ServerSettings& settings, const LinkListener& on_link) {
  if constexpr (std::is_base_of_v<As, LocalStore>) {
    if (const auto* target = std::get_if<LocalTarget>(&settings.server)) {
      return std::make_unique<LocalStore>(directory_of(*target));
    }
  }
  if (const auto* database = std::get_if<SqlTarget>(&settings.server)) {
    auto backend = database->mysql
                       ? open_mysql(*database->mysql, database->shown, database->password)
                       : open_postgres(database->url, database->shown, database->password);
    return std::make_unique<CasStore>(std::move(backend), settings.prefix);
  }
#ifdef DLOCK_WITH_ETCD
  if (const auto* etcd = std::get_if<EtcdTarget>(&settings.server)) {
    return std::make_unique<CasStore>(std::make_unique<EtcdBackend>(etcd->servers, etcd->name()),
                                      settings.prefix);
  }
#endif
#ifdef DLOCK_WITH_ZOOKEEPER
  if (const auto* zookeeper = std::get_if<ZooKeeperTarget>(&settings.server)) {
    auto backend = std::make_unique<ZooKeeperBackend>(
        zookeeper->servers, zookeeper->name(), zookeeper->chroot, settings.prefix,
        session_for(settings.session_ttl.value_or(usual_session)));
    return std::make_unique<CasStore>(std::move(backend), settings.prefix);
  }
#endif
#ifdef DLOCK_WITH_KUBERNETES
  if (const auto* cluster = std::get_if<KubeTarget>(&settings.server)) {
    auto backend = std::make_unique<KubeBackend>(cluster->context, cluster->name_space,
                                                 settings.prefix, cluster->name());
    return std::make_unique<CasStore>(std::move(backend), settings.prefix);
  }
#endif
  if (const auto* memcached = std::get_if<MemcachedTarget>(&settings.server)) {
    if constexpr (std::is_same_v<As, Latches>) {
      throw_usage("memcached keeps no latch: it cannot count arrivals, and may forget them");
    }
    return std::make_unique<CasStore>(
        std::make_unique<MemcachedBackend>(memcached->at, memcached->name()), settings.prefix);
  }
#ifdef DLOCK_WITH_S3
  if (const auto* s3 = std::get_if<S3Target>(&settings.server)) {
    const S3Place place{s3->servers.front(), s3->region, s3->bucket, s3->folder,
                        s3->bucket_in_path};
    return std::make_unique<CasStore>(
        std::make_unique<S3Backend>(place, s3->name(), settings.prefix), settings.prefix);
  }
#endif
  const auto* quorum = std::get_if<QuorumTarget>(&settings.server);
  if (quorum == nullptr) {
    RedisStoreOptions redis{settings.prefix, settings.replicas};
    redis.on_link = on_link;
    return std::make_unique<RedisStore>(open_redis(settings.server, redis), redis);
  }
  if constexpr (std::is_base_of_v<As, QuorumStore>) {
    const auto node = [prefix = settings.prefix, on_link](const Endpoint& server) {
      return std::make_unique<RedisMember>(server, prefix, on_link);
    };
    return std::make_unique<QuorumStore>(node_clients(quorum->servers, node));
  } else {
    throw_usage(
        "a majority of servers keeps no latch: name one of them, or an engine that replicates: "
        "Sentinel, a Cluster, a database, etcd, ZooKeeper or Kubernetes");
  }
}

/// Opens an engine in dlock's own layout or in that of another library.
StorePtr open_any(const ServerSettings& settings, const LinkListener& on_link) {
  if (!settings.layout) return open<Store>(settings, on_link);
  RedisStoreOptions redis;
  redis.on_link = on_link;
  const auto* quorum = std::get_if<QuorumTarget>(&settings.server);
  if (quorum == nullptr) {
    return std::make_unique<CompatStore>(*settings.layout, open_redis(settings.server, redis));
  }
  const auto node = [layout = *settings.layout, redis](const Endpoint& server) {
    return std::make_unique<CompatStore>(layout, open_redis(server, redis));
  };
  return std::make_unique<QuorumStore>(node_clients(quorum->servers, node),
                                       "a majority as the libraries take it: no fencing token, and "
                                       "a server that restarts empty votes at once");
}

}  // namespace

std::unique_ptr<RedisTransport> open_redis(const Target& server, RedisStoreOptions options) {
  options.may_move = !std::holds_alternative<Endpoint>(server);
  if (const auto* one = std::get_if<Endpoint>(&server)) {
    return std::make_unique<RedisClient>(*one, options);
  }
  if (const auto* target = std::get_if<ClusterTarget>(&server)) {
    return std::make_unique<ClusterRouter>(target->seeds, std::move(options));
  }
  const auto& target = std::get<SentinelTarget>(server);
  return std::make_unique<RedisClient>(
      EndpointResolver(target.sentinels, target.master_name, target.master), options);
}

StorePtr open_store(const ServerSettings& settings) { return open_any(settings, {}); }

StorePtr open_store(const ServerSettings& settings, const Log& log) {
  if (!settings.verbose) return open_store(settings);
  const auto on_link = [log](const Endpoint& to, std::chrono::nanoseconds took) {
    report_step(log, "connected to " + to.name() + " in " + exact_duration(took));
  };
  return std::make_unique<TracingStore>(open_any(settings, on_link), log);
}

std::string server_source_text(const ServerSettings& settings) {
  if (settings.overridden_place.empty()) return settings.server_place;
  return settings.server_place + ", which overrides the server of " + settings.overridden_place;
}

CallOptions inspect_call(const ServerSettings& settings, const std::vector<std::string>& patterns) {
  constexpr milliseconds time_for_all_keys{60'000};
  const bool may_last =
      is_redis(settings.server) || std::holds_alternative<S3Target>(settings.server);
  if (patterns.empty() || !may_last) return short_call();
  return {later(BootClock::now(), time_for_all_keys), -1};
}

std::unique_ptr<Latches> open_latches(const ServerSettings& settings) {
  return open<Latches>(settings, {});
}

std::unique_ptr<FenceRegister> open_fence_register(const ServerSettings& settings) {
  return open<FenceRegister>(settings, {});
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
      log.error(error);
      code = exit_code(error.kind());
    }
    if (first == ExitCode::ok) first = code;
    // The requests for the other keys would fail in the same way.
    if (code == ExitCode::unavailable || code == ExitCode::denied) break;
  }
  return static_cast<int>(first);
}

int for_each_key_of(const Token& token, const LockSettings& settings, Store& store, const Log& log,
                    const std::function<ExitCode(const LockKey&)>& body) {
  if (!settings.keys.empty()) return for_each_key(settings.keys, log, body);
  const Owner owner = owner_in(token);
  std::vector<LockKey> keys;
  for (const KeyState& state : store.inspect({{}, {"*"}}, inspect_call(settings, {"*"}))) {
    const bool may_hold =
        std::any_of(state.holders.begin(), state.holders.end(),
                    [&](const Holder& each) { return owner.is_or_below(Owner{each.owner}); });
    if (may_hold) keys.push_back(state.key);
  }
  std::size_t held = 0;
  const int code = for_each_key(keys, log, [&](const LockKey& key) {
    const ExitCode one = body(key);
    if (one == ExitCode::ok) ++held;
    return one == ExitCode::lost ? ExitCode::ok : one;
  });
  if (code != 0 || held >= keys_of(token)) return code;
  log.error(token_holds_text(held, keys_of(token), store.name()));
  return static_cast<int>(ExitCode::lost);
}

}  // namespace dlock
