#include "base/fd.hpp"

#include <unistd.h>

namespace dlock {

void Fd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

}  // namespace dlock
