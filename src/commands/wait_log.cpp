#include "commands/wait_log.hpp"

#include <poll.h>

#include <exception>
#include <system_error>
#include <utility>

namespace dlock {

milliseconds wait_line_due(int n) {
  constexpr int each_minute = 5;
  return std::chrono::minutes(n <= each_minute ? n : (n - each_minute + 1) * each_minute);
}

void WaitLog::begin(Text text) {
  end();
  if (log_.quiet()) return;
  since_ = BootClock::now();
  text_ = std::move(text);
  stop_.clear();
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    // The waiting itself goes on.
  }
}

void WaitLog::change(Text text) {
  const std::lock_guard guard(mutex_);
  text_ = std::move(text);
}

void WaitLog::end() {
  stop_.raise();
  if (thread_.joinable()) thread_.join();
}

void WaitLog::work() {
  try {
    for (int n = 1;; ++n) {
      pollfd stop[] = {{stop_.fd(), POLLIN, 0}};
      if (poll_until(stop, later(since_, due_(n))) > 0) return;
      const std::lock_guard guard(mutex_);
      log_.notice(text_(passed_since(since_)));
    }
  } catch (const std::exception&) {
    // Out of memory or of descriptors: the waiting itself goes on.
  }
}

}  // namespace dlock
