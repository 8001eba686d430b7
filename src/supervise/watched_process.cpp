#include "supervise/watched_process.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "base/error.hpp"
#include "base/process.hpp"

namespace dlock {
namespace {

/// Every process of a user runs some program.
bool belongs_to_kernel(pid_t pid) {
  const std::string exe = "/proc/" + std::to_string(pid) + "/exe";
  char target = 0;
  return readlink(exe.c_str(), &target, 1) < 0 && errno == ENOENT;
}

}  // namespace

WatchedProcess::WatchedProcess(pid_t pid) : pid_(pid) {
  const std::string name = "process " + std::to_string(pid);
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::usage, why); };
  if (pid == getpid()) refuse(name + " is dlock itself, which cannot wait for its own end");
  pidfd_ = open_pidfd(pid);
  if (!pidfd_) {
    // A thread's number is one of the kernel's, but none of a process.
    if (errno == ESRCH || errno == EINVAL || errno == ENOENT) refuse("there is no " + name);
    throw_errno("cannot watch " + name + ": pidfd_open");
  }
  if (!send(0) && errno == EPERM) {
    refuse(name + " is another user's, and could not be told of a loss");
  }
  if (ended()) refuse("there is no " + name + " any more");
  if (belongs_to_kernel(pid) && !ended()) refuse(name + " is a thread of the kernel");
}

bool WatchedProcess::send(int signal) const { return send_signal(pidfd_, signal); }

}  // namespace dlock
