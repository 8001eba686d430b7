#pragma once

#include <termios.h>

#include <optional>

#include "base/fd.hpp"

namespace dlock {

/// The controlling terminal. The child is in dlock's process group, so it is in the foreground when
/// dlock is.
class Terminal {
 public:
  /// Notes the modes, if stdin and stdout are the terminal and dlock is in the foreground.
  Terminal();

  /// Whether there is a terminal; looks for it if stdin is none.
  bool exists();
  /// Whether dlock's process group is in the foreground.
  bool in_front() const;
  /// The modes as they were at the start, after a child that was stopped and may not have cleaned
  /// up; unless another process group has the terminal by now.
  void reset_modes() const;

 private:
  int fd() const { return opened_ ? opened_.get() : 0; }

  std::optional<termios> modes_;
  Fd opened_;
};

}  // namespace dlock
