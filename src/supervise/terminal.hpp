#pragma once

#include <sys/types.h>
#include <termios.h>

#include <optional>

#include "base/fd.hpp"

namespace dlock {

/// The process group that may read from the controlling terminal: dlock's own job or its child's
/// process group.
///
/// The child has a group of its own, so that all of it can be signalled at once. With stdin and
/// stdout on the terminal that group is in the foreground whenever dlock's job is. In a pipeline
/// that begins at the terminal (`dlock run cmd | less`) the child stays in dlock's group: taking
/// the foreground would stop `less`. In every other case the child is given the terminal when it
/// is stopped for touching it (`data | dlock run less`).
class Terminal {
 public:
  /// Looks where stdin and stdout lead; changes nothing.
  Terminal();

  bool shares_group() const { return shares_group_; }

  /// To be told by the parent that it has forked a child, which leads this group unless it shares
  /// dlock's, and puts it into the foreground if `given()`.
  void forked(pid_t group);

  /// Whether there is a terminal at all; looks for it if stdin is none.
  bool exists();

  /// Puts the child's group in the foreground; false unless dlock's own group was there.
  bool give();
  /// The same, if the child is one that has the terminal while dlock's job does.
  void give_again();
  bool given() const { return given_; }
  /// Puts dlock's group back into the foreground, if it was given away and no shell has taken it
  /// since.
  void take_back();
  /// The modes as they were at the start, after a child that was stopped and may not have cleaned
  /// up; unless the terminal is somebody else's by now.
  void reset_modes() const;

 private:
  bool shell_has_it() const;
  int fd() const { return opened_ ? opened_.get() : 0; }

  bool stdin_is_terminal_ = false;
  bool shares_group_ = false;
  bool belongs_to_child_ = false;
  bool given_ = false;
  pid_t own_group_ = 0;
  pid_t child_group_ = 0;
  std::optional<termios> modes_;
  Fd opened_;
};

}  // namespace dlock
