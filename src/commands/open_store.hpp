#pragma once

#include <concepts>
#include <functional>
#include <optional>

#include "base/error.hpp"
#include "config/settings.hpp"
#include "local/directory.hpp"
#include "lock/latch.hpp"
#include "lock/store.hpp"
#include "output/log.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// The settings of a command that decide which store is opened. They must outlive this object.
struct StoreOptions {
  const ServerSettings& settings;
  const Layout* layout = nullptr;     ///< of another library; null: dlock's own
  std::optional<milliseconds> ttl{};  ///< sets the timeout of a session with the server
  int replicas = 0;

  template <std::derived_from<ServerSettings> Settings>
  StoreOptions(const Settings& all) : settings(all) {  // NOLINT(google-explicit-constructor)
    if constexpr (requires { all.ttl; }) ttl = all.ttl;
    if constexpr (requires { all.layout; }) layout = all.layout ? &*all.layout : nullptr;
    if constexpr (std::derived_from<Settings, ClaimSettings>) replicas = all.replicas;
  }
};

/// Makes the engine that `options` name, in dlock's own layout or in that of another library. Only
/// this function turns a URL into a store. It opens and connects nothing yet.
StorePtr open_store(const StoreOptions& options);

/// The same; with -v, the store writes a line to stderr for each step.
StorePtr open_store(const StoreOptions& options, const Log& log);

/// The options of an inspect that also lists the keys matching `patterns`, if any. In Redis it may
/// take a minute, because SCAN walks through all keys of the server, perhaps millions; otherwise it
/// is a short_call(). In both cases a request without an answer ends it early.
CallOptions inspect_call(const ServerSettings& settings, const std::vector<std::string>& patterns);

/// Opens Redis: one server, a master behind Sentinel, or a Cluster.
std::unique_ptr<RedisTransport> open_redis(const Target& server, RedisStoreOptions options);

/// Opens the same engine for latches.
std::unique_ptr<Latches> open_latches(const StoreOptions& options);

/// Opens the fence register of `guard`; `options` must name servers, not `local:`.
std::unique_ptr<FenceRegister> open_fence_register(const StoreOptions& options);

/// The directory that `local:` names.
DirectorySettings directory_of(const LocalTarget& target);

/// Calls `body` for every key, and reports an error at once. Continues after an error, except if
/// the server is unavailable or denies access. Returns the first exit code that is not 0.
int for_each_key(const std::vector<LockKey>& keys, const Log& log,
                 const std::function<ExitCode(const LockKey&)>& body);

}  // namespace dlock
