#include "base/clock_steps.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

namespace dlock {
namespace {

std::chrono::nanoseconds wall_against_boot() {
  return wall_now().time_since_epoch() - BootClock::now().time_since_epoch();
}

}  // namespace

ClockSteps::ClockSteps()
    : timer_(timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
      apart_(wall_against_boot()) {
  itimerspec at_the_end_of_time{};
  at_the_end_of_time.it_value.tv_sec = std::numeric_limits<time_t>::max();
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at_the_end_of_time,
                  nullptr);
}

std::chrono::nanoseconds ClockSteps::taken() {
  std::uint64_t expirations = 0;
  [[maybe_unused]] const auto cancelled = read(timer_.get(), &expirations, sizeof expirations);
  const auto before = apart_;
  apart_ = wall_against_boot();
  return apart_ - before;
}

}  // namespace dlock
