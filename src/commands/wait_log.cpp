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
  since_ = BootClock::now();
  stop_.clear();
  change(std::move(text));
}

void WaitLog::change(Text text) {
  // Two looks at the key in the worst case, of which each may take some seconds.
  constexpr std::chrono::seconds longest_until_next_change{35};
  {
    const std::lock_guard guard(mutex_);
    text_ = std::move(text);
  }
  start_by(later(since_, due_(1) - longest_until_next_change));
}

void WaitLog::change_for_long(Text text) {
  change(std::move(text));
  start_by(since_);
}

/// Starts the thread unless it can wait: `due` is still to come.
void WaitLog::start_by(Deadline due) {
  if (log_.quiet() || thread_.joinable() || BootClock::now() < due) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    // The waiting itself goes on.
  }
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
      // After a suspend many lines are overdue, which would all say the same.
      while (later(since_, due_(n + 1)) <= BootClock::now()) ++n;
    }
  } catch (const std::exception&) {
    // Out of memory or of descriptors: the waiting itself goes on.
  }
}

}  // namespace dlock
