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

/// After how long the waiter says for the n-th time (from 1) that it still waits: each minute, and
/// after five minutes every five.
milliseconds wait_line_due(int n);

/// For a waiter without a terminal: a line now and then, because a CI system ends a job that is
/// silent for long. A thread writes them; it begins shortly before the first line is due, so that a
/// short wait costs none, and the command that follows need not wait for its end.
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
  /// From now on there is something else to say. The waiter calls this every half a minute at
  /// least, unless it has called change_for_long().
  void change(Text text);
  /// The same, where nobody knows when the next change comes.
  void change_for_long(Text text);
  /// No line comes after this.
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

/// The line that somebody at a terminal sees while dlock waits: the holder, the place in the queue
/// and the time waited. A thread of its own draws it each second, and looks at the lock every
/// few seconds through a store of its own: only the first in the queue is told what changes, and
/// the others neither of a new holder nor of those who leave before them.
class WaitStatus {
 public:
  /// `open` makes the store; `owner` and `who` are those of the waiter.
  WaitStatus(std::function<StorePtr()> open, Owner owner, Who who);
  ~WaitStatus() { end(); }

  /// The waiting for `key` has begun: the line appears.
  void begin(const LockKey& key, const Refusal& refusal);
  /// What the waiter was answered.
  void news(const Refusal& refusal);
  /// The server does not answer the waiter, or does so again.
  void away(bool away);
  /// Has something else written, with the line out of its way.
  void aside(const std::function<void()>& write);
  /// Wiped, and the thread gone, when this returns.
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
  LiveLine line_;               ///< guarded by mutex_, as what follows
  LockKey key_;                 ///< of the waiting under way
  std::optional<Refusal> now_;  ///< how things stood at `as_of_`
  Deadline as_of_{};
  Deadline since_{};
  bool away_ = false;
  std::thread thread_;
};

}  // namespace dlock
