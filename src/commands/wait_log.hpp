#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "lock/store.hpp"
#include "output/log.hpp"
#include "output/screen.hpp"

namespace dlock {

/// The time after which the waiter reports for the n-th time (from 1) that it still waits: every
/// minute, and after five minutes every five.
milliseconds wait_line_due(int n);

/// Writes a line now and then for a waiter without a terminal, because CI systems end a job that is
/// silent for long. A thread writes the lines. It starts shortly before the first one is due, so
/// that a short wait needs no thread, and the command after it does not wait for the thread to end.
class WaitLog {
 public:
  /// `due` is wait_line_due, except in tests that cannot wait for a minute.
  explicit WaitLog(const Log& log, std::function<milliseconds(int)> due = wait_line_due)
      : log_(log), due_(std::move(due)) {}
  WaitLog(const WaitLog&) = delete;
  WaitLog& operator=(const WaitLog&) = delete;
  ~WaitLog() { end(); }

  /// Makes the line from the time waited.
  using Text = std::function<std::string(milliseconds waited)>;
  /// Called when a wait begins.
  void begin(Text text);
  /// Replaces the text. The waiter calls this at least every half a minute, unless it has called
  /// change_for_long().
  void change(Text text);
  /// Replaces the text when the time of the next change is not known.
  void change_for_long(Text text);
  /// Ends the lines; none is written after this.
  void end();

 private:
  void start_by(Deadline due);
  void work();

  const Log& log_;
  const std::function<milliseconds(int)> due_;
  Event stop_;
  Deadline since_{};
  std::mutex mutex_;
  Text text_;  ///< guarded by mutex_
  std::thread thread_;
};

/// The status line on a terminal while dlock waits: the holder, the queue position and the time
/// waited. A thread draws it every second, and reads the lock every few seconds through its own
/// store. It must read, because only the first waiter gets notifications: the others do not hear of
/// a new holder or of waiters that leave.
class WaitStatus {
 public:
  /// `open` makes the store; `owner` and `who` are those of the waiter.
  WaitStatus(std::function<StorePtr()> open, Owner owner, Who who);
  ~WaitStatus() { end(); }

  /// Shows the line when a wait for `key` begins.
  void begin(const LockKey& key, const Refusal& refusal);
  /// Takes an answer that the waiter got.
  void news(const Refusal& refusal);
  /// Says whether the server has stopped answering the waiter.
  void away(bool away);
  /// Removes the line, calls `write`, and draws the line again later.
  void aside(const std::function<void()>& write);
  /// Removes the line and ends the thread before it returns.
  void end();

 private:
  void work();
  void look(StorePtr& store);
  void draw();

  const std::function<StorePtr()> open_;
  const Owner owner_;
  const Who who_;
  Event stop_;
  Event news_;
  std::mutex mutex_;
  LiveLine line_;               ///< guarded by mutex_, like the members below
  LockKey key_;                 ///< of the current wait
  std::optional<Refusal> now_;  ///< the state at `as_of_`
  Deadline as_of_{};
  Deadline since_{};
  bool away_ = false;
  std::thread thread_;
};

}  // namespace dlock
