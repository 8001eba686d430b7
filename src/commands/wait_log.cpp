#include "commands/wait_log.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "output/sentences.hpp"

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

namespace {

constexpr milliseconds between_drawings{1000};
constexpr milliseconds between_looks{3000};
constexpr milliseconds longest_look_at_it{1000};

/// The same as the waiter would be told if it asked.
Refusal as_told(const KeyState& state, const Owner& owner, const Who& who) {
  Refusal refusal;
  refusal.held_by = state.holders;
  refusal.holders = state.holders.size();
  refusal.unordered = !state.holders.empty() && !state.holders.front().library.empty();
  refusal.waiting = state.waiters.size();
  const auto self = std::find_if(state.waiters.begin(), state.waiters.end(), [&](const auto& each) {
    return each.owner == owner.text && each.who == who;
  });
  refusal.ahead = static_cast<std::size_t>(self - state.waiters.begin());
  return refusal;
}

}  // namespace

WaitStatus::WaitStatus(std::function<StorePtr()> open, Owner owner, Who who)
    : open_(std::move(open)),
      owner_(std::move(owner)),
      who_(std::move(who)),
      line_(STDERR_FILENO) {}

void WaitStatus::begin(const LockKey& key, const Refusal& refusal) {
  end();
  key_ = key;
  now_ = refusal;
  as_of_ = since_ = BootClock::now();
  away_ = false;
  stop_.clear();
  news_.clear();
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    // Then there is no line; the lock can be waited for without.
  }
}

void WaitStatus::news(const Refusal& refusal) {
  {
    const std::lock_guard guard(mutex_);
    now_ = refusal;
    as_of_ = BootClock::now();
    away_ = false;
  }
  news_.raise();
}

void WaitStatus::away(bool away) {
  const std::lock_guard guard(mutex_);
  away_ = away;
}

void WaitStatus::aside(const std::function<void()>& write) {
  const std::lock_guard guard(mutex_);
  line_.wipe();
  write();
}

void WaitStatus::end() {
  stop_.raise();
  if (thread_.joinable()) thread_.join();
  line_.wipe();
}

void WaitStatus::work() {
  try {
    StorePtr store;
    Deadline draw_at = since_;
    Deadline look_at = later(since_, between_looks);
    while (true) {
      pollfd fds[] = {{stop_.fd(), POLLIN, 0}, {news_.fd(), POLLIN, 0}};
      poll_until(fds, draw_at);
      if (stop_.raised()) return;
      news_.clear();
      // Nobody looks at what is in the background.
      if (BootClock::now() >= look_at && in_foreground(STDERR_FILENO)) {
        look(store);
        look_at = later(BootClock::now(), between_looks);
      }
      draw();
      draw_at = later(BootClock::now(), between_drawings);
    }
  } catch (const std::exception&) {
    // Out of memory or of descriptors: the waiting itself goes on.
  }
}

void WaitStatus::look(StorePtr& store) {
  try {
    if (!store) store = open_();
    const CallOptions call_options{later(BootClock::now(), longest_look_at_it), stop_.fd()};
    const auto states = store->inspect({{key_}, {}}, call_options);
    const std::lock_guard guard(mutex_);
    now_ = as_told(states.front(), owner_, who_);
    as_of_ = BootClock::now();
  } catch (const Error&) {
    // What the waiter itself is told has to do.
  }
}

void WaitStatus::draw() {
  const std::lock_guard guard(mutex_);
  Refusal now = *now_;
  age_by(now.held_by, passed_since(as_of_));
  constexpr std::string_view begin = "dlock: ";
  Screen screen = screen_at(STDERR_FILENO);
  screen.columns -= std::min(screen.columns, begin.size() + LiveLine::margin);
  const auto waited = passed_since(since_);
  line_.draw(std::string(begin) + (away_ ? waiting_in_vain_text(key_, waited, screen)
                                         : waiting_text(key_, now, waited, screen)));
}

}  // namespace dlock
