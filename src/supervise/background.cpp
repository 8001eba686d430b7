#include "supervise/background.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/process.hpp"

namespace dlock {
namespace {

std::vector<int> open_fds() {
  std::vector<int> fds = numbers_in("/proc/self/fd");
  if (!fds.empty()) return fds;
  // Without /proc, try all numbers: the limit may be infinite, but the kernel gives the lowest
  // first.
  constexpr rlim_t most = 65'536;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min(limit.rlim_cur, most));
  for (int fd = 0; fd < end; ++fd) fds.push_back(fd);
  return fds;
}

/// Whether the descriptor came from the process that executed dlock. An exec closes close-on-exec
/// descriptors, and all that dlock itself opens are close-on-exec.
bool came_through_exec(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

}  // namespace

void let_go_of_caller() {
  if (setsid() < 0) throw_errno("setsid");
  prctl(PR_SET_NAME, keeper_name);
  if (chdir("/") < 0) throw_errno("chdir to /");
  const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing) throw_errno("cannot open /dev/null");
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (dup2(nothing.get(), fd) < 0) throw_errno("dup2");
  }
  for (const int fd : open_fds()) {
    if (fd > STDERR_FILENO && came_through_exec(fd)) close(fd);
  }
}

}  // namespace dlock
