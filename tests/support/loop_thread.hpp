#pragma once

#include <poll.h>

#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock::test {

/// A thread that serves sockets until destroyed. Only this thread touches what it serves; the test
/// reaches it through `ask`, so nothing needs a mutex.
class LoopThread {
 public:
  /// `watch` adds the descriptors to wait for and returns a deadline. `tick` runs after each wait,
  /// does all work that is ready, and never blocks.
  LoopThread(std::function<Deadline(std::vector<pollfd>&)> watch, std::function<void()> tick);
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  /// Runs `task` in the thread before its next tick; returns when it has run.
  void ask(const std::function<void()>& task);

 private:
  void loop();
  void run_tasks();

  std::function<Deadline(std::vector<pollfd>&)> watch_;
  std::function<void()> tick_;
  Fd wake_;
  std::mutex mutex_;  ///< guards tasks_
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;  ///< only the thread uses it
  std::thread thread_;
};

}  // namespace dlock::test
