#include "supervise/terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace dlock {

Terminal::Terminal() {
  termios modes{};
  if (in_front() && tcgetpgrp(STDOUT_FILENO) >= 0 && tcgetattr(STDIN_FILENO, &modes) == 0) {
    modes_ = modes;
  }
}

bool Terminal::exists() {
  if (tcgetpgrp(fd()) >= 0) return true;
  opened_ = Fd(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  return static_cast<bool>(opened_);
}

bool Terminal::in_front() const { return tcgetpgrp(fd()) == getpgrp(); }

void Terminal::reset_modes() const {
  if (modes_ && in_front()) tcsetattr(fd(), TCSANOW, &*modes_);
}

}  // namespace dlock
