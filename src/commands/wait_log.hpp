#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "output/log.hpp"

namespace dlock {

/// After how long the waiter says for the n-th time (from 1) that it still waits: each minute, and
/// after five minutes every five.
milliseconds wait_line_due(int n);

/// For a waiter without a terminal: a line now and then, from a thread of its own, because a CI
/// system ends a job that is silent for long.
class WaitLog {
 public:
  /// `due` is wait_line_due, unless a test has no minute to spare.
  explicit WaitLog(const Log& log, std::function<milliseconds(int)> due = wait_line_due)
      : log_(log), due_(std::move(due)) {}
  WaitLog(const WaitLog&) = delete;
  WaitLog& operator=(const WaitLog&) = delete;
  ~WaitLog() { end(); }

  /// Makes the line of how long the waiter has waited.
  using Text = std::function<std::string(milliseconds waited)>;
  /// The waiting has begun.
  void begin(Text text);
  /// From now on there is something else to say.
  void change(Text text);
  /// No line comes after this.
  void end();

 private:
  void work();

  const Log& log_;
  const std::function<milliseconds(int)> due_;
  Event stop_;
  Deadline since_{};
  std::mutex mutex_;
  Text text_;  ///< guarded by mutex_
  std::thread thread_;
};

}  // namespace dlock
