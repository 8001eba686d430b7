#include "attach/release_socket.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "commands/commands.hpp"
#include "commands/lock_acquirer.hpp"
#include "commands/open_store.hpp"
#include "output/json.hpp"
#include "output/sentences.hpp"

namespace dlock {

int carry_out(const RenewSettings& settings, const Log& log) {
  // The attach daemon renews by its own ttl: it would renew a shorter lease too late, and would
  // shorten a longer one.
  if (settings.ttl && is_attached(settings.token)) {
    throw Error(ErrorKind::usage,
                "--ttl: this token is kept by acquire --attach with the ttl it began with: renew "
                "it without --ttl");
  }
  const StorePtr store = open_store(settings, log);
  const int code = for_each_key_of(settings.token, settings, *store, log, [&](const LockKey& key) {
    const Renewed renewed =
        store->renew(claim_named(key, settings.token), {.ttl = settings.ttl}, short_call());
    if (!renewed.grant && settings.keys.empty() && !renewed.evicted_by) return ExitCode::lost;
    if (settings.json && !settings.quiet) print(renewed_json(key, renewed));
    if (const auto& by = renewed.stop_asked_by)
      log.notice(escaped(key.text) + ": " + stop_asked_by_text(*by));
    if (renewed.grant) return ExitCode::ok;
    log.error(not_held_by_token_text(key, renewed.evicted_by));
    return ExitCode::lost;
  });
  report_troubles(log, *store);
  return code;
}

}  // namespace dlock
