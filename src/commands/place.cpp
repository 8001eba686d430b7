#include "commands/place.hpp"

#include "local/local_store.hpp"
#include "redis/redis_store.hpp"

namespace dlock {
StorePtr open_store(const Settings& settings) {
  const auto* one = std::get_if<Endpoint>(&settings.server);
  const bool plain = std::holds_alternative<LocalTarget>(settings.server) || (one && !one->tls);
  if (!plain || settings.replicas > 0) {
    throw Error(Trouble::usage,
                "TLS, Sentinel, Cluster and --replicas are not supported by this version");
  }
  if (const auto* redis = std::get_if<Endpoint>(&settings.server)) {
    return std::make_unique<RedisStore>(std::make_unique<FixedRoute>(*redis), settings.prefix);
  }
  const auto& local = std::get<LocalTarget>(settings.server);
  const DirectorySettings directory = local.dir ? DirectorySettings{*local.dir, false}
                                                : DirectorySettings{default_directory(), true};
  return std::make_unique<LocalStore>(directory);
}

int for_each_key(const Settings& settings, const Log& log,
                 const std::function<ExitCode(const LockKey&)>& body) {
  ExitCode first = ExitCode::ok;
  for (const LockKey& key : settings.keys) {
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

Patience short_patience() {
  constexpr milliseconds silence_of_a_dead_server{5000};
  return {later(BootClock::now(), silence_of_a_dead_server), -1};
}

}  // namespace dlock
