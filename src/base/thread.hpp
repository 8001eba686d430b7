#pragma once

#include <signal.h>
#include <time.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace dlock {

/// Starts a thread that the caller cannot do without; throws Error{host_refused} if the host cannot
/// create it. `work` must not throw.
template <typename Work>
std::thread start_thread(Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::host_refused, std::string("cannot start a thread: ") + error.what());
  }
}

/// Blocks SIGPIPE in this thread: for a library that calls write() on sockets, and for output to
/// stderr before dlock has set up its signal handling.
class PipeSignalHeld {
 public:
  PipeSignalHeld() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalHeld() {
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalHeld(const PipeSignalHeld&) = delete;
  PipeSignalHeld& operator=(const PipeSignalHeld&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace dlock
