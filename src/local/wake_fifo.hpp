#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "local/directory.hpp"
#include "rule/admission.hpp"

namespace dlock {

/// The bytes in a FIFO; each means "look again".
enum class News : char {
  own = '!',        ///< the FIFO's owner was granted the lock, or its hold was evicted
  of_others = '.',  ///< the owner's predecessor changed, or the obstacle ends sooner: not urgent
};

/// The FIFO in the lock directory at which one process listens. Others can open it for writing only
/// while the process lives, which makes it a sign of life, across pid namespaces too. The end of
/// the process wakes the processes that have it open.
class WakeFifo {
 public:
  /// Only chooses the name; open() creates the FIFO.
  explicit WakeFifo(const Directory& directory);
  WakeFifo(const WakeFifo&) = delete;
  WakeFifo& operator=(const WakeFifo&) = delete;
  ~WakeFifo();

  const std::string& name() const { return name_; }
  /// Creates the FIFO, or renews the times of an existing one. Throws Error{host_refused}.
  void open();
  /// Chooses the process that removes the FIFO when it ends; by default the FIFO's creator.
  void leave_to(pid_t pid) { keeper_ = pid; }
  /// Readable when the FIFO has a byte; -1 before open().
  int fd() const { return fd_.get(); }
  /// Removes all notifications from the FIFO and returns the most urgent one, if any.
  std::optional<News> take() const;

 private:
  const Directory& directory_;
  std::string name_;
  Fd fd_;
  pid_t keeper_ = 0;
};

/// The result of opening another process's FIFO.
struct Reached {
  enum class How {
    listening,
    gone,    ///< its owner has ended, or there is no such FIFO
    closed,  ///< this user may not open it
  };
  How how = How::gone;
  Fd fd;  ///< with `listening`; polls POLLERR when the owner ends
};

/// Opens the FIFO for writing. Throws Error{host_refused} if this process can open no more files.
Reached reach(const Directory& directory, const std::string& mailbox);

/// Whether the owner of the FIFO has ended.
bool is_gone(const Directory& directory, const std::string& mailbox);

/// Notifies the owner of the FIFO, if it listens.
void notify(const Directory& directory, const std::string& mailbox, News news);

/// Removes the FIFO of a process that has ended.
void remove_mailbox(const Directory& directory, const std::string& mailbox);

/// Whether this is the name of such a FIFO: reach() opens no other name from a table.
bool is_mailbox_name(const std::string& name);

/// Collects the notifications of one request, until deliver() sends them.
class FifoNotifier final : public WaiterNotifier {
 public:
  explicit FifoNotifier(const Directory& directory) : directory_(directory) {}
  bool wake(const WaiterEntry& waiter, const Message& message) override;
  /// Only the first waiter must know when the obstacle ends: each other waiter watches the one
  /// before it.
  WakeWindow first_few() const override { return {1, 1}; }
  /// The waiter confirms its hold before it starts its command.
  milliseconds provisional_lease() const override { return milliseconds(2000); }
  /// Notifies a waiter, unless it is notified already, that its predecessor in the queue has
  /// changed. False if the waiter's process no longer listens.
  bool tell_moved(const WaiterEntry& waiter);
  /// Notifies a holder that its hold was evicted, or that it was asked to stop.
  void tell_holder(const HolderIdentity& holder) { pending_[holder.mailbox] = News::own; }
  void deliver();

 private:
  bool knock(const std::string& mailbox, News news);

  const Directory& directory_;
  std::map<std::string, News> pending_;  ///< by FIFO
};

}  // namespace dlock
