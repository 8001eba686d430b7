#include <algorithm>

#include "attach/release_socket.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "commands/commands.hpp"
#include "commands/lock_acquirer.hpp"
#include "commands/open_store.hpp"
#include "output/json.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

/// How long the second request of release_for_certain() may take: it needs a new connection.
constexpr milliseconds time_for_a_second_request{2000};

ExitCode evict_holders(Store& store, const ReleaseSettings& settings, const LockKey& key,
                       const Log& log) {
  const auto fence = settings.fence;
  const Who by = this_process("dlock", settings.reason);
  const auto evicted = store.evict(key, fence, by, short_call());
  if (settings.json && !settings.quiet) print(evicted_json(key, evicted));
  for (const Holder& holder : evicted) {
    const std::string who = holder.library.empty() ? who_text(holder.who) : client_text(holder);
    log.notice("evicted " + who + " from " + escaped(key.text) + fence_text(holder.fence) +
               (settings.reason.empty() ? "" : ": " + escaped(settings.reason)));
  }
  if (!evicted.empty()) return ExitCode::ok;
  if (!fence) {
    log.notice("nobody held " + escaped(key.text));
    return ExitCode::ok;
  }
  log.error(escaped(key.text) + " is not held with fence " + std::to_string(fence->value) +
            " (any more)");
  return ExitCode::lost;
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
                      const Log& log) {
  const Token& token = *settings.token;
  const ReleaseNotice notice(token, key);
  const auto [outcome, by] = release_for_certain(store, claim_named(key, token), notice, log);
  const bool was_held = outcome != Released::not_held;
  notice.answered(was_held);
  if (!was_held && settings.keys.empty() && !by) return ExitCode::lost;
  if (settings.json && !settings.quiet) print(released_json(key, was_held, by));
  if (was_held) return ExitCode::ok;
  log.error(not_held_by_token_text(key, by));
  return ExitCode::lost;
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

/// The keys given, and all held keys that match a pattern.
std::vector<LockKey> keys_to_evict(Store& store, const ReleaseSettings& settings, const Log& log) {
  std::vector<LockKey> keys = settings.keys;
  for (const std::string& pattern : settings.patterns) {
    bool found = false;
    for (const KeyState& state :
         store.inspect({{}, {pattern}}, inspect_call(settings, {pattern}))) {
      if (state.holders.empty()) continue;
      found = true;
      const bool is_new = std::find(keys.begin(), keys.end(), state.key) == keys.end();
      if (is_new) keys.push_back(state.key);
    }
    if (!found) log.notice("no lock matches " + escaped(pattern));
  }
  return keys;
}

}  // namespace

int carry_out(const ReleaseSettings& settings, const Log& log) {
  if (settings.token == Token{}) return release_nothing(settings, log);
  const StorePtr store = open_store(settings, log);
  const int code =
      settings.evict
          ? for_each_key(
                keys_to_evict(*store, settings, log), log,
                [&](const LockKey& key) { return evict_holders(*store, settings, key, log); })
          : for_each_key_of(*settings.token, settings, *store, log, [&](const LockKey& key) {
              return give_up_hold(*store, settings, key, log);
            });
  report_troubles(log, *store);
  return code;
}

}  // namespace dlock
