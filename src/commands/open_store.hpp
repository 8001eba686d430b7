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

/// Makes the engine that `settings` name, in dlock's own layout or in that of another library. Only
/// this function turns a URL into a store. It opens and connects nothing yet.
StorePtr open_store(const ServerSettings& settings);

/// Like open_store(settings), but with -v the store writes a line to stderr for each step.
StorePtr open_store(const ServerSettings& settings, const Log& log);

/// The place that names the server, and the one it overrides, for users; empty: the command line.
std::string server_source_text(const ServerSettings& settings);

/// The options of an inspect that also lists the keys matching `patterns`, if any. In Redis a list
/// may take a minute, because SCAN walks through all keys of the server, perhaps millions, and
/// likewise where each record takes a request. Any other inspect is a short_call(). Both end early
/// if a single request gets no answer.
CallOptions inspect_call(const ServerSettings& settings, const std::vector<std::string>& patterns);

/// Opens Redis: one server, a master behind Sentinel, or a Cluster.
std::unique_ptr<RedisTransport> open_redis(const Target& server, RedisStoreOptions options);

/// Opens the engine that `settings` name, for latches.
std::unique_ptr<Latches> open_latches(const ServerSettings& settings);

/// Opens the fence register of `guard`; `settings` must name servers, not `local:`.
std::unique_ptr<FenceRegister> open_fence_register(const ServerSettings& settings);

/// The directory that `local:` names; if it names none, the default directory.
DirectorySettings directory_of(const LocalTarget& target);

/// Calls `body` for every key, and reports an error at once. Continues after an error, except if
/// the server is unavailable or denies access. Returns the first exit code that is not 0.
int for_each_key(const std::vector<LockKey>& keys, const Log& log,
                 const std::function<ExitCode(const LockKey&)>& body);

/// The same for the keys that `settings` name, or, if they name none, for all keys that the owner
/// of `token` holds. `body` returns `lost` for a key that the token does not hold. Without named
/// keys that is an error only if the token holds fewer keys than it was made for.
int for_each_key_of(const Token& token, const LockSettings& settings, Store& store, const Log& log,
                    const std::function<ExitCode(const LockKey&)>& body);

}  // namespace dlock
