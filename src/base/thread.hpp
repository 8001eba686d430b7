#pragma once

#include <signal.h>
#include <time.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace dlock {

/// A thread without which the caller cannot go on; throws Error{host_refused} if the host has no
/// room for one. `work` must not throw.
template <typename Work>
std::thread start_thread(Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::host_refused, std::string("cannot start a thread: ") + error.what());
  }
}

/// Keeps SIGPIPE from this thread: for a library that writes to sockets as to files, and for what
/// is written to stderr before anybody has seen to the signal.
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
