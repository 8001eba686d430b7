#include "base/clock.hpp"

#include <cstdio>
#include <ctime>
#include <string>

namespace dlock {

BootClock::time_point BootClock::now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

Deadline later(Deadline from, std::chrono::nanoseconds span) {
  return span > never - from ? never : from + span;
}

milliseconds left_until(Deadline deadline) {
  const auto now = BootClock::now();
  if (deadline <= now) return milliseconds(0);
  return std::chrono::ceil<milliseconds>(deadline - now);
}

milliseconds passed_since(Deadline then) {
  return std::chrono::floor<milliseconds>(BootClock::now() - then);
}

WallTime wall_now() {
  return std::chrono::time_point_cast<microseconds>(std::chrono::system_clock::now());
}

WallTime wall_at(Deadline then) {
  return wall_now() - std::chrono::duration_cast<microseconds>(BootClock::now() - then);
}

std::string iso8601(WallTime time) {
  const auto since_epoch = std::chrono::floor<milliseconds>(time.time_since_epoch());
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(since_epoch).count();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  const std::size_t used = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  char tail[8];
  std::snprintf(tail, sizeof tail, ".%03dZ", static_cast<int>(since_epoch.count() % 1000));
  return std::string(text, used) + tail;
}

}  // namespace dlock
