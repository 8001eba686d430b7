#include "lock/release.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

std::variant<ReleaseResult, Error> release_until_answered(Store& store, const Held& held,
                                                          ReleaseOptions how, Deadline until) {
  how.renewed_elsewhere = held.renewed_elsewhere;
  constexpr milliseconds pause{20};
  // A connection that died silently swallows the first request, so most of the time is reserved for
  // a second one, on a new connection.
  constexpr BootClock::duration longest_first_try = milliseconds(1000);
  const auto begun = BootClock::now();
  auto answer_by = begun + std::min((until - begun) / 2, longest_first_try);
  const bool was_granted = held.grant.fence.value != 0;
  bool asked_before = false;
  while (true) {
    try {
      auto result = store.release(held.claim, how, {answer_by, -1});
      // An earlier request of ours has released the hold, unless another client had before.
      return asked_before && result.has_gone() ? ReleaseResult{Released::yes} : result;
    } catch (const Error& error) {
      const auto again = later(BootClock::now(), pause);
      // A server that is busy with other clients will answer later, so wait longer for it.
      const bool later_on = says_later(error.cause()) && was_granted;
      const bool may_pass = error.kind() == ErrorKind::unavailable ||
                            error.kind() == ErrorKind::host_refused ||
                            (was_granted && is_refused_login(error.cause()));
      const auto turn =
          std::min(held.grant.lease.valid_until, later(again, silence_of_a_dead_server));
      if (later_on) until = std::max(until, turn);
      if (!may_pass || again >= until) return error;
      sleep_until(again, -1);
      asked_before = true;
      answer_by = until;
    }
  }
}

bool release_all(Store& store, const std::vector<Held>& held, milliseconds at_most) {
  auto until = later(BootClock::now(), at_most);
  bool all_answered = true;
  for (const Held& each : held) {
    const auto end = release_until_answered(store, each, {ReleaseMode::ignore_floor}, until);
    const bool answered = std::holds_alternative<ReleaseResult>(end);
    // An engine that has answered so far gets the full time for the next hold: it may just be slow.
    if (answered || all_answered) until = later(BootClock::now(), at_most);
    all_answered = all_answered && answered;
  }
  return all_answered;
}

}  // namespace dlock
