#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/wait.hpp"
#include "lock/store.hpp"
#include "output/picture.hpp"

namespace dlock {

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
