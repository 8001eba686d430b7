#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/fd.hpp"
#include "local/directory.hpp"

namespace dlock {

/// The bytes in a mailbox, each of which says "look again".
enum class News : char {
  own = '!',        ///< it was let in, or thrown out
  of_others = '.',  ///< it has another before it, or what blocks it ends sooner: no need to hurry
};

/// Where one process listens: a FIFO in the lock directory. While the process lives it can be
/// opened for writing, and no longer: so it is a sign of life too, also across pid namespaces, and
/// its end wakes who has it open.
class WakeFifo {
 public:
  /// Only chooses the name; open() makes the FIFO.
  explicit WakeFifo(const Directory& directory);
  WakeFifo(const WakeFifo&) = delete;
  WakeFifo& operator=(const WakeFifo&) = delete;
  ~WakeFifo();

  const std::string& name() const { return name_; }
  /// Makes the FIFO, or makes the one that is there look new. Throws Error{host_refused}.
  void open();
  /// The one process that removes the FIFO at its end; by default the one that made it.
  void leave_to(pid_t pid) { keeper_ = pid; }
  /// Readable when there is a byte; -1 before open().
  int fd() const { return fd_.get(); }
  /// Takes all news out, and answers with the most urgent, if there was any.
  std::optional<News> take() const;

 private:
  const Directory& directory_;
  std::string name_;
  Fd fd_;
  pid_t keeper_ = 0;
};

/// The other end of a mailbox.
struct Reached {
  enum class How {
    listening,
    nobody,   ///< it is there, and its owner has gone
    missing,  ///< it is not there, or is no mailbox
    closed,   ///< not for this user to open
  };
  How how = How::missing;
  Fd fd;  ///< with `listening`; POLLERR on it when the owner goes
};

/// Throws Error{host_refused} if this process can open no more files.
Reached reach(const Directory& directory, const std::string& mailbox);

/// Tells the owner of a mailbox that listens.
void write_news(const Fd& mailbox, News news);

/// Removes the mailbox of one who has gone.
void remove_mailbox(const Directory& directory, const std::string& mailbox);

/// Whether a file of this name can be a mailbox: what a table says is not opened otherwise.
bool is_mailbox_name(const std::string& name);

}  // namespace dlock
