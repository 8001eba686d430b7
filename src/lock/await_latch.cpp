#include "lock/await_latch.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

/// A waiter asks at least this often, because its wake-up may have been lost with a server.
constexpr milliseconds longest_sleep_at_a_latch{25'000};
/// The wait may last this much longer, to report the current count to the user.
constexpr milliseconds time_for_a_last_count{200};

/// One waiter at one latch.
class AtLatch {
 public:
  AtLatch(Latches& latches, const LockKey& key, Deadline wait_end, int cancel_fd,
          LatchListener& listener, bool reached)
      : latches_(latches),
        key_(key),
        wait_end_(wait_end),
        interrupt_fd_(cancel_fd),
        listener_(listener),
        outage_(listener, reached, wait_end != never) {}

  LatchWait run();

 private:
  std::optional<LatchWait::End> look(bool listen, milliseconds at_most);
  std::optional<LatchWait::End> look_and_sleep();
  LatchWait::End look_once_more();

  Latches& latches_;
  const LockKey& key_;
  Deadline wait_end_;
  int interrupt_fd_;
  LatchListener& listener_;
  Outage outage_;
  LatchState state_;
  bool announced_ = false;
};

LatchWait AtLatch::run() {
  const auto end = ask_until(
      wait_end_, interrupt_fd_, outage_, [this] { return look_and_sleep(); },
      [this] { return look_once_more(); });
  return {end.value_or(LatchWait::End::interrupted), state_, outage_.reached()};
}

std::optional<LatchWait::End> AtLatch::look(bool listen, milliseconds at_most) {
  const auto state =
      latches_.look_at_latch(key_, listen, {later(BootClock::now(), at_most), interrupt_fd_});
  if (!state) return LatchWait::End::gone;
  state_ = *state;
  return state_.open() ? std::optional(LatchWait::End::open) : std::nullopt;
}

std::optional<LatchWait::End> AtLatch::look_and_sleep() {
  const bool listen = BootClock::now() < wait_end_;
  const milliseconds rest = left_until(later(wait_end_, time_for_a_last_answer));
  const auto end = look(
      listen, announced_ ? std::min(silence_of_a_dead_server, rest) : silence_of_a_dead_server);
  outage_.end();
  if (end || !listen) return end ? end : LatchWait::End::timed_out;
  std::exchange(announced_, true) ? listener_.still_waiting(state_) : listener_.waiting(state_);
  // `left` was rounded to milliseconds, so wait one more.
  const auto its_end = later(BootClock::now(), state_.left + milliseconds(1));
  const auto due = std::min(its_end, later(BootClock::now(), longest_sleep_at_a_latch));
  const auto why = latches_.sleep_at_latch(key_, std::min(due, wait_end_), interrupt_fd_);
  if (why == Wake::Reason::interrupted) return LatchWait::End::interrupted;
  return std::nullopt;
}

LatchWait::End AtLatch::look_once_more() {
  try {
    return look(false, time_for_a_last_count).value_or(LatchWait::End::timed_out);
  } catch (const Error&) {
    return LatchWait::End::timed_out;
  }
}

}  // namespace

LatchWait await_latch(Latches& latches, const LockKey& key, std::optional<milliseconds> wait,
                      int cancel_fd, LatchListener& listener, bool reached) {
  const auto wait_end = wait ? later(BootClock::now(), *wait) : never;
  return AtLatch(latches, key, wait_end, cancel_fd, listener, reached).run();
}

}  // namespace dlock
