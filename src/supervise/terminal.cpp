#include "supervise/terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace dlock {

Terminal::Terminal() {
  const pid_t foreground = tcgetpgrp(STDIN_FILENO);
  if (foreground < 0) return;
  stdin_is_terminal_ = true;
  own_group_ = getpgrp();
  belongs_to_child_ = tcgetpgrp(STDOUT_FILENO) >= 0;
  if (foreground != own_group_) return;
  shares_group_ = !belongs_to_child_;
  given_ = belongs_to_child_;
  termios modes{};
  if (given_ && tcgetattr(STDIN_FILENO, &modes) == 0) modes_ = modes;
}

void Terminal::forked(pid_t group) { child_group_ = group; }

bool Terminal::exists() {
  if (stdin_is_terminal_ || opened_) return true;
  own_group_ = getpgrp();
  opened_ = Fd(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  return static_cast<bool>(opened_);
}

bool Terminal::give() {
  if (shares_group_ || !exists()) return false;
  const pid_t foreground = tcgetpgrp(fd());
  given_ = foreground == child_group_ ||
           (foreground == own_group_ && tcsetpgrp(fd(), child_group_) == 0);
  belongs_to_child_ = belongs_to_child_ || given_;
  return foreground == own_group_ && given_;
}

void Terminal::give_again() {
  if (belongs_to_child_) give();
}

void Terminal::take_back() {
  if (given_ && !shell_has_it()) tcsetpgrp(fd(), own_group_);
  given_ = false;
}

/// A shell that sees dlock stop takes the terminal, whatever dlock itself knows of that.
bool Terminal::shell_has_it() const {
  const pid_t foreground = tcgetpgrp(fd());
  return foreground == getsid(0) || foreground == getpgid(getppid());
}

void Terminal::reset_modes() const {
  if (modes_ && tcgetpgrp(fd()) == own_group_) tcsetattr(fd(), TCSANOW, &*modes_);
}

}  // namespace dlock
