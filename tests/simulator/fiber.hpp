#pragma once

#include <ucontext.h>

#include <functional>
#include <memory>

namespace dlock::sim {

/// A stack of its own for code that blocks: enter() runs it until it leaves, and later on from
/// there. All fibers share one thread.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// From outside: returns when the body leaves or ends.
  void enter();
  /// From inside.
  void leave();
  bool ended() const { return ended_; }

 private:
  /// What the C++ runtime keeps for exceptions that are being handled, by thread as it thinks.
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
