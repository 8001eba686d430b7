#include "commands/wait_reporter.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

constexpr milliseconds between_drawings{1000};
constexpr milliseconds between_looks{3000};
constexpr milliseconds longest_look{1000};
/// The next call of waiting() or server_lost() comes within this time: after a sleep of at most
/// 25 s, and up to two requests, which may take some seconds each.
constexpr std::chrono::seconds longest_until_next_change{35};

}  // namespace

milliseconds wait_line_due(int n) {
  constexpr int each_minute = 5;
  return std::chrono::minutes(n <= each_minute ? n : (n - each_minute + 1) * each_minute);
}

void WaitReporter::waiting(const LockKey& key, Text text) {
  if (!waits_for(key)) {
    end();
    key_ = key;
    ended_ = false;
    wake_.clear();
  }
  {
    const std::lock_guard guard(mutex_);
    text_ = std::move(text);
    away_ = false;
  }
  if (on_terminal()) wake_.raise();
  const Deadline start_at = later(since_, due_(1) - longest_until_next_change);
  if (on_terminal() || BootClock::now() >= start_at) start();
}

void WaitReporter::server_lost(const std::string& why) {
  {
    const std::lock_guard guard(mutex_);
    away_ = true;
    line_.wipe();
    log_.notice(server_lost_text(why, "waiting"));
  }
  // It is unknown when the next call comes, so start the thread now.
  if (key_) start();
}

void WaitReporter::server_back(milliseconds away) {
  const std::lock_guard guard(mutex_);
  away_ = false;
  line_.wipe();
  log_.notice(server_back_text(away, "waiting"));
}

milliseconds WaitReporter::end() {
  {
    const std::lock_guard guard(mutex_);
    ended_ = true;
  }
  wake_.raise();
  if (thread_.joinable()) thread_.join();
  key_.reset();
  line_.wipe();
  return passed_since(std::exchange(since_, BootClock::now()));
}

void WaitReporter::start() {
  if (log_.quiet() || thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    // The wait goes on without these lines.
  }
}

void WaitReporter::work() {
  try {
    if (on_terminal()) return draw_lines();
    for (int n = 1; sleep(later(since_, due_(n))); ++n) {
      const std::lock_guard guard(mutex_);
      log_.notice(text(Screen{}));
      // After a suspend many lines are overdue, and all would say the same.
      while (later(since_, due_(n + 1)) <= BootClock::now()) ++n;
    }
  } catch (const std::exception&) {
    // No memory or descriptor is free; the wait goes on without these lines.
  }
}

void WaitReporter::draw_lines() {
  Deadline look_at = later(since_, between_looks);
  for (Deadline draw_at = since_; sleep(draw_at);
       draw_at = later(BootClock::now(), between_drawings)) {
    // A background job has no visible line to update.
    if (BootClock::now() >= look_at && in_foreground(STDERR_FILENO)) {
      read_key();
      look_at = later(BootClock::now(), between_looks);
    }
    const std::lock_guard guard(mutex_);
    constexpr std::string_view begin = "dlock: ";
    Screen screen = screen_at(STDERR_FILENO);
    screen.columns -= std::min(screen.columns, begin.size() + LiveLine::margin);
    line_.draw(std::string(begin) + text(screen));
  }
}

/// Returns true at `until`, or earlier if there is a change to draw; false if the wait has ended.
bool WaitReporter::sleep(Deadline until) {
  pollfd wake[] = {{wake_.fd(), POLLIN, 0}};
  poll_until(wake, until);
  wake_.clear();
  const std::lock_guard guard(mutex_);
  return !ended_;
}

void WaitReporter::read_key() {
  try {
    Text text = look_(*key_, {later(BootClock::now(), longest_look), wake_.fd()});
    const std::lock_guard guard(mutex_);
    text_ = std::move(text);
  } catch (const Error&) {
    // The line shows the answers that the waiter itself gets.
  }
}

std::string WaitReporter::text(const Screen& screen) {
  const auto waited = passed_since(since_);
  return away_ ? waiting_in_vain_text(*key_, waited, screen) : text_(waited, screen);
}

}  // namespace dlock
