#pragma once

#include <ucontext.h>

#include <functional>
#include <memory>

namespace dlock::sim {

/// Runs blocking code on a stack of its own: enter() runs the code until it leaves, and the next
/// enter() continues there. All fibers share one thread.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Called from outside: returns when the body leaves or ends.
  void enter();
  /// Called from inside: returns from enter().
  void leave();
  bool ended() const { return ended_; }

 private:
  /// The exceptions in handling, which the C++ runtime keeps for each thread.
  struct Handled {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  };
  static void run(unsigned int high, unsigned int low);
  void exchange_handled();

  std::function<void()> body_;
  std::unique_ptr<char[]> stack_;
  ucontext_t inside_{};
  ucontext_t outside_{};
  Handled handled_;
  bool ended_ = false;
};

}  // namespace dlock::sim
