#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attach/release_socket.hpp"
#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/commands.hpp"
#include "commands/hook.hpp"
#include "commands/lock_acquirer.hpp"
#include "commands/open_store.hpp"
#include "output/json.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

/// How long the second request of release_for_certain() may take: it needs a new connection.
constexpr milliseconds time_for_a_second_request{2000};

ExitCode nobody_held(const ReleaseSettings& settings, const LockKey& key, const Log& log) {
  const auto fence = settings.fence;
  if (!fence) {
    log.notice("nobody held " + escaped(key.text));
    return ExitCode::ok;
  }
  log.error(escaped(key.text) + " is not held with fence " + std::to_string(fence->value) +
            " (any more)");
  return ExitCode::lost;
}

ExitCode evict_holders(Store& store, const ReleaseSettings& settings, const LockKey& key,
                       const Log& log) {
  const Who by = this_process("dlock", settings.reason);
  const auto evicted = store.evict(key, {settings.fence, by}, short_call());
  if (settings.json && !settings.quiet) print(evicted_json(key, evicted));
  for (const Holder& holder : evicted) {
    log.notice("evicted " + client_text(holder) + " from " + escaped(key.text) +
               fence_text(holder.fence) +
               (settings.reason.empty() ? "" : ": " + escaped(settings.reason)));
  }
  return evicted.empty() ? nobody_held(settings, key, log) : ExitCode::ok;
}

/// The holders that were asked to stop.
using Asked = std::vector<std::pair<LockKey, Holder>>;

/// Returns 75 if nobody waits for the holders, and one of them does not hear the request.
ExitCode ask_to_stop(Store& store, const ReleaseSettings& settings, const LockKey& key, Asked& all,
                     const Log& log) {
  const Who by = this_process("dlock", settings.reason);
  auto asked = store.evict(key, {settings.fence, by, true}, short_call());
  std::erase_if(asked, [](const Holder& holder) { return holder.kept; });
  if (settings.json && !settings.quiet) print(stop_json(key, asked));
  auto code = asked.empty() ? nobody_held(settings, key, log) : ExitCode::ok;
  for (const Holder& holder : asked) {
    all.emplace_back(key, holder);
    report_stop_request(log, key, holder);
    if (!holder.hears_requests() && !settings.wait) code = ExitCode::not_acquired;
  }
  return code;
}

/// Waits until those holders have gone; returns 75 if they have not in time.
ExitCode await_end(Store& store, Asked holders, milliseconds at_most, const Log& log) {
  constexpr milliseconds first_pause{50}, longest_pause{1000};
  Backoff pauses(first_pause, longest_pause);
  const Deadline until = later(BootClock::now(), at_most);
  const auto has_gone = [&](const auto& asked) {
    const Holder& before = asked.second;
    const auto now = store.inspect({{asked.first}, {}}, short_call()).front().holders;
    return std::none_of(now.begin(), now.end(), [&](const Holder& holder) {
      return holder.owner == before.owner && holder.fence == before.fence && !holder.kept;
    });
  };
  while (true) {
    std::erase_if(holders, has_gone);
    if (holders.empty()) return ExitCode::ok;
    if (BootClock::now() >= until) break;
    sleep_until(std::min(until, later(BootClock::now(), pauses.next())), -1);
  }
  for (const auto& [key, holder] : holders) {
    log.notice(escaped(key.text) + " is still held by " + client_text(holder) + " after " +
               human_duration(at_most));
  }
  return ExitCode::not_acquired;
}

/// Releases a hold. If the answer to the request is lost, asks once more: if the hold is gone then,
/// the first request has released it, or its lease has expired, and both count as released.
ReleaseResult release_for_certain(Store& store, const Claim& claim, const ReleaseNotice& notice,
                                  const Log& log) {
  const Event sent;
  CallOptions first = short_call();
  first.sent = &sent;
  try {
    return store.release(claim, {}, first);
  } catch (const Error& error) {
    // The engine may have carried out the request although no answer came.
    const bool may_be_done =
        error.kind() == ErrorKind::unavailable && sent.raised() && !is_reply(error.cause());
    if (!may_be_done) {
      notice.answered(false);
      throw;
    }
  }
  auto second = store.release(claim, {}, at_most(time_for_a_second_request, short_call()));
  if (!second.has_gone()) return second;
  log.notice(
      escaped(claim.key.text) +
      ": the server's first answer was lost; by the second the token holds nothing any more");
  return {Released::yes};
}

ExitCode give_up_hold(Store& store, const ReleaseSettings& settings, const LockKey& key,
                      const Log& log, Hook& hook) try {
  const Token& token = *settings.token;
  const ReleaseNotice notice(token, key);
  const auto [outcome, by] = release_for_certain(store, claim_named(key, token), notice, log);
  const bool was_held = outcome != Released::not_held;
  notice.answered(was_held);
  if (!was_held && settings.keys.empty() && !by) return ExitCode::lost;
  if (settings.json && !settings.quiet) print(released_json(key, was_held, by));
  const std::string why = was_held ? "" : not_held_by_token_text(key, by);
  const auto code = was_held ? ExitCode::ok : ExitCode::lost;
  if (!was_held) log.error(why);
  hook.call({.event = was_held ? "released" : "lost",
             .keys = key.text,
             .reason = why,
             .exit_code = std::to_string(static_cast<int>(code))});
  return code;
} catch (const Error& error) {
  hook.call(error_call({key}, error));
  throw;
}

/// Handles an empty token, which comes from an acquire that failed.
int release_nothing(const ReleaseSettings& settings, const Log& log) {
  log.notice("the token is empty, so nothing was released: the acquire that was to print it " +
             std::string("did not take the lock"));
  for (const LockKey& key : settings.keys) {
    if (settings.json && !settings.quiet) print(released_json(key, false, {}));
  }
  return static_cast<int>(ExitCode::ok);
}

/// Asks on the terminal whether to go on; without one, refuses.
bool is_confirmed(const std::string& question) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) {
    throw Error(ErrorKind::usage, "nothing was done: there is no terminal to ask on, so say --yes");
  }
  write_all(STDERR_FILENO, "dlock: " + question + " [y/N] ");
  // A terminal gives one line. std::cin would make every start of dlock slower.
  char line[16];
  const auto length = read(STDIN_FILENO, line, sizeof line);
  const std::string_view answer(line, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return answer == "y\n" || answer == "yes\n";
}

/// The keys given, and all held keys that match a pattern, if the user confirms these.
std::vector<LockKey> keys_to_free(Store& store, const ReleaseSettings& settings, const Log& log) {
  std::vector<LockKey> keys = settings.keys;
  std::size_t matches = 0;
  for (const std::string& pattern : settings.patterns) {
    bool found = false;
    for (const KeyState& state :
         store.inspect({{}, {pattern}}, inspect_call(settings, {pattern}))) {
      if (state.holders.empty()) continue;
      found = true;
      if (std::find(keys.begin(), keys.end(), state.key) != keys.end()) continue;
      keys.push_back(state.key);
      if (settings.yes) continue;
      ++matches;
      for (const Holder& holder : state.holders) {
        log.notice(escaped(state.key.text) + " is held by " + client_text(holder));
      }
    }
    if (!found) log.notice("no lock matches " + escaped(pattern));
  }
  const std::string what = settings.stop ? "ask the holders to stop" : "evict the holders";
  const std::string those =
      matches == 1 ? "this key" : "these " + std::to_string(matches) + " keys";
  if (matches > 0 && !is_confirmed(what + " of " + those + "?")) return {};
  return keys;
}

int release_holds(Store& store, const ReleaseSettings& settings, const Log& log, Hook& hook) {
  return for_each_key_of(*settings.token, settings, store, log, [&](const LockKey& key) {
    return give_up_hold(store, settings, key, log, hook);
  });
}

int end_holds_of_others(Store& store, const ReleaseSettings& settings, const Log& log) {
  Asked asked;
  const int code = for_each_key(keys_to_free(store, settings, log), log, [&](const LockKey& key) {
    return settings.stop ? ask_to_stop(store, settings, key, asked, log)
                         : evict_holders(store, settings, key, log);
  });
  if (!settings.wait || code != 0) return code;
  return static_cast<int>(await_end(store, std::move(asked), *settings.wait, log));
}

}  // namespace

int carry_out(const ReleaseSettings& settings, const Log& log) {
  Hook hook(settings.token ? settings.hook : std::nullopt, log);
  // main() does this for other commands; here it comes after the hook, which would inherit it.
  for (const int signal : {SIGXFSZ, SIGPIPE}) std::signal(signal, SIG_IGN);
  if (settings.token == Token{}) return release_nothing(settings, log);
  const StorePtr store = open_store(settings, log);
  hook.set_where(store->name());
  const int code = settings.token ? release_holds(*store, settings, log, hook)
                                  : end_holds_of_others(*store, settings, log);
  report_troubles(log, *store);
  hook.finish(nullptr);
  return code;
}

}  // namespace dlock
