#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/fd.hpp"
#include "local/directory.hpp"

namespace dlock {

/// The bytes in a FIFO; each means "look again".
enum class News : char {
  own = '!',        ///< the FIFO's owner was granted the lock, or its hold was evicted
  of_others = '.',  ///< its predecessor has changed, or the obstacle ends sooner: not urgent
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
  /// Chooses the process that removes the FIFO at its end; by default the one that created it.
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
    nobody,   ///< it exists, but its owner has ended
    missing,  ///< it does not exist, or is not a FIFO of dlock
    closed,   ///< this user may not open it
  };
  How how = How::missing;
  Fd fd;  ///< with `listening`; polls POLLERR when the owner ends
};

/// Opens the FIFO for writing. Throws Error{host_refused} if this process can open no more files.
Reached reach(const Directory& directory, const std::string& mailbox);

/// Notifies the owner of an open FIFO.
void write_news(const Fd& mailbox, News news);

/// Removes the FIFO of a process that has ended.
void remove_mailbox(const Directory& directory, const std::string& mailbox);

/// Whether this is the name of such a FIFO: no other name from a table is ever opened.
bool is_mailbox_name(const std::string& name);

}  // namespace dlock
