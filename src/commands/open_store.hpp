#pragma once

#include <functional>

#include "base/error.hpp"
#include "config/settings.hpp"
#include "local/directory.hpp"
#include "lock/latch.hpp"
#include "lock/store.hpp"
#include "output/log.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// The settings of a command that decide which store is opened; they outlive it.
// NOLINTBEGIN(google-explicit-constructor)
struct StoreTerms {
  const ServerSettings& settings;
  const Layout* layout = nullptr;   ///< of another library
  std::optional<milliseconds> ttl;  ///< the lease that a session with the server has to serve
  int replicas = 0;

  StoreTerms(const ServerSettings& all) : settings(all) {}
  StoreTerms(const LatchSettings& all) : settings(all), ttl(all.ttl) {}
  StoreTerms(const DoctorSettings& all) : settings(all), ttl(all.ttl) {}
  StoreTerms(const LockSettings& all)
      : settings(all), layout(all.layout ? &*all.layout : nullptr) {}
  StoreTerms(const RenewSettings& all)
      : settings(all), layout(all.layout ? &*all.layout : nullptr), ttl(all.ttl) {}
  StoreTerms(const ClaimSettings& all)
      : settings(all),
        layout(all.layout ? &*all.layout : nullptr),
        ttl(all.ttl),
        replicas(all.replicas) {}
};
// NOLINTEND(google-explicit-constructor)

/// The engine that `terms` name: the one place where a URL becomes a store, in dlock's own
/// layout or in that of another library. Nothing is opened or connected yet.
StorePtr open_store(const StoreTerms& terms);

/// The same, and with -v a line on stderr for each step it takes.
StorePtr open_store(const StoreTerms& terms, const Log& log);

/// The options of an inspect that also lists what matches `patterns`, if any: in Redis it has a
/// minute, as SCAN walks through all keys of the server, which may be millions; else it is a
/// short_call(). A request without an answer ends it as soon in both cases.
CallOptions inspect_call(const ServerSettings& settings, const std::vector<std::string>& patterns);

/// The way to Redis, on one server, behind Sentinel or in a Cluster.
std::unique_ptr<RedisTransport> open_redis(const Target& server, RedisTerms terms);

/// The same place for latches.
std::unique_ptr<Latches> open_latches(const StoreTerms& terms);

/// The same for what `guard` asks, where `terms` name servers and not `local:`.
std::unique_ptr<FenceRegister> open_fence_register(const StoreTerms& terms);

/// The directory behind `local:`.
DirectorySettings directory_of(const LocalTarget& target);

/// Does the same for every key, also after trouble with one, which is told at once. Returns the
/// first exit code that is not 0.
int for_each_key(const std::vector<LockKey>& keys, const Log& log,
                 const std::function<ExitCode(const LockKey&)>& body);

}  // namespace dlock
