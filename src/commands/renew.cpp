#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/escape.hpp"
#include "commands/commands.hpp"
#include "commands/place.hpp"

namespace dlock {

int renew_command(const Settings& settings, const Log& log) {
  const StorePtr store = open_store(settings);
  int code = 0;
  for (const LockKey& key : settings.keys) {
    const auto lease = store->renew(key, *settings.token, settings.ttl, short_patience());
    if (lease) {
      log.detail("renewed " + escaped(key.text) + " for " + human_duration(lease->length));
      continue;
    }
    log.error(escaped(key.text) + " is no longer held by this token");
    code = static_cast<int>(ExitCode::lost);
  }
  return code;
}

}  // namespace dlock
