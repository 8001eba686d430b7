#include "support/loop_thread.hpp"

#include <sys/eventfd.h>

#include <future>
#include <memory>
#include <utility>

#include "base/error.hpp"

namespace dlock::test {

LoopThread::LoopThread(std::function<Deadline(std::vector<pollfd>&)> watch,
                       std::function<void()> tick)
    : watch_(std::move(watch)), tick_(std::move(tick)), wake_(eventfd(0, EFD_CLOEXEC)) {
  if (!wake_) throw_errno("eventfd");
  thread_ = std::thread([this] { loop(); });
}

LoopThread::~LoopThread() {
  ask([this] { stopping_ = true; });
  thread_.join();
}

void LoopThread::ask(const std::function<void()>& task) {
  // Shared, as the waiter may be gone before set_value has returned.
  const auto done = std::make_shared<std::promise<void>>();
  {
    const std::lock_guard lock(mutex_);
    tasks_.emplace_back([&task, done] {
      task();
      done->set_value();
    });
  }
  eventfd_write(wake_.get(), 1);
  done->get_future().wait();
}

void LoopThread::run_tasks() {
  if (!readable(wake_.get())) return;
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

void LoopThread::loop() {
  while (!stopping_) {
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
    const Deadline wake_at = watch_(fds);
    poll_until(fds, wake_at);
    run_tasks();
    tick_();
  }
}

}  // namespace dlock::test
