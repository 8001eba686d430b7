#include "lock/latch.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

/// A waiter asks at least this often, because its wake-up may have been lost with a server.
constexpr milliseconds longest_sleep_at_a_latch{25'000};
/// The wait may last this much longer, to report the current count to the user.
constexpr milliseconds time_for_a_last_count{200};

}  // namespace

ArrivalId new_arrival_id() {
  constexpr std::size_t random_bytes = 16;
  return ArrivalId{random_hex(random_bytes)};
}

LatchWait await_latch(Latches& latches, const LockKey& key, std::optional<milliseconds> wait,
                      int cancel_fd, LatchListener& listener, bool reached) {
  using End = LatchWait::End;
  const Deadline wait_end = wait ? later(BootClock::now(), *wait) : never;
  Outage outage(listener, reached, wait_end != never);
  LatchState state;
  bool waits = false;
  const auto look = [&](bool listen, milliseconds at_most) -> std::optional<End> {
    const auto seen =
        latches.look_at_latch(key, listen, {later(BootClock::now(), at_most), cancel_fd});
    if (!seen) return End::gone;
    state = *seen;
    return state.open() ? std::optional(End::open) : std::nullopt;
  };
  const auto look_and_sleep = [&]() -> std::optional<End> {
    const bool listen = BootClock::now() < wait_end;
    const milliseconds rest = left_until(later(wait_end, time_for_a_last_answer));
    const auto end =
        look(listen, waits ? std::min(silence_of_a_dead_server, rest) : silence_of_a_dead_server);
    outage.end();
    if (end || !listen) return end ? end : End::timed_out;
    waits = true;
    listener.waiting(state);
    // `left` was rounded to milliseconds, so wait one more.
    const auto its_end = later(BootClock::now(), state.left + milliseconds(1));
    const auto due = std::min(its_end, later(BootClock::now(), longest_sleep_at_a_latch));
    const auto why = latches.sleep_at_latch(key, std::min(due, wait_end), cancel_fd);
    return why == Wake::Reason::interrupted ? std::optional(End::interrupted) : std::nullopt;
  };
  const auto look_once_more = [&] {
    try {
      return look(false, time_for_a_last_count).value_or(End::timed_out);
    } catch (const Error&) {
      return End::timed_out;
    }
  };
  const auto end = ask_until(wait_end, cancel_fd, outage, look_and_sleep, look_once_more);
  return {end.value_or(End::interrupted), state, outage.reached()};
}

}  // namespace dlock
