#pragma once

#include <unistd.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "lock/claim.hpp"
#include "output/log.hpp"
#include "output/screen.hpp"

namespace dlock {

/// The time after which a waiter without a terminal reports for the n-th time (from 1) that it
/// still waits: every minute, and after five minutes every five.
milliseconds wait_line_due(int n);

/// Shows a wait: the holder, the queue position and the time waited. Its user calls it from one
/// thread; another thread writes the lines.
///
/// On a terminal the thread draws the line every second, and reads the key every few seconds,
/// because only the first waiter gets notifications: the others do not hear of a new holder or of
/// waiters that leave.
///
/// Elsewhere the log gets a line now and then, because CI systems end a job that is silent for
/// long. The thread starts shortly before the first one is due, so that a short wait needs no
/// thread, and the command after it does not wait for the thread to end.
class WaitReporter {
 public:
  /// Makes the line from the time waited; it fits into one line of `screen`.
  using Text = std::function<std::string(milliseconds waited, const Screen& screen)>;
  /// Reads the key. It may throw Error.
  using Look = std::function<Text(const LockKey& key, const CallOptions& call_options)>;

  /// With `look`, the reporter draws on a terminal, otherwise it writes to the log. `due` is
  /// wait_line_due, except in tests that cannot wait for a minute.
  explicit WaitReporter(const Log& log, Look look = {},
                        std::function<milliseconds(int)> due = wait_line_due)
      : log_(log), look_(std::move(look)), due_(std::move(due)), line_(STDERR_FILENO) {}
  WaitReporter(const WaitReporter&) = delete;
  WaitReporter& operator=(const WaitReporter&) = delete;
  ~WaitReporter() { end(); }

  bool on_terminal() const { return look_ != nullptr; }
  /// Whether the current wait is for this key.
  bool waits_for(const LockKey& key) const { return key_ == key; }
  /// Call this for each answer that the waiter gets: at least twice a minute, unless the server is
  /// lost. The first call for another key begins another wait.
  void waiting(const LockKey& key, Text text);
  void server_lost(const std::string& why);
  void server_back(milliseconds away);
  /// Ends the wait: removes the line, and ends the thread before it returns. Returns how long the
  /// wait took.
  milliseconds end();

 private:
  void start();
  void work();
  bool sleep(Deadline until);
  void read_key();
  void draw_lines();
  std::string text(const Screen& screen);

  const Log& log_;
  const Look look_;
  const std::function<milliseconds(int)> due_;
  Event wake_;
  std::optional<LockKey> key_{};  ///< of the current wait
  Deadline since_ = BootClock::now();
  std::mutex mutex_;
  LiveLine line_;  ///< guarded by mutex_, like the next three members
  Text text_;
  bool away_ = false;   ///< the server does not answer
  bool ended_ = false;  ///< the thread has to end
  std::thread thread_;
};

}  // namespace dlock
