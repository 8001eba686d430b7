#pragma once

#include <poll.h>

#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock::test {

/// A thread that serves sockets until destroyed. All that it serves is touched in this thread only:
/// the test reaches it through `ask`, so that there is nothing to lock.
class LoopThread {
 public:
  /// `watch` adds what to wait for and says until when; `tick` does, without blocking, whatever can
  /// be done, and runs after each wait.
  LoopThread(std::function<Deadline(std::vector<pollfd>&)> watch, std::function<void()> tick);
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  /// Runs `task` in the thread, before its next tick; returns when it has run.
  void ask(const std::function<void()>& task);

 private:
  void loop();
  void run_tasks();

  std::function<Deadline(std::vector<pollfd>&)> watch_;
  std::function<void()> tick_;
  Fd wake_;
  std::mutex mutex_;  ///< guards tasks_
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;  ///< the thread's own
  std::thread thread_;
};

}  // namespace dlock::test
