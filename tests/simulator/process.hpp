#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simulator/clock.hpp"
#include "simulator/fiber.hpp"
#include "simulator/world.hpp"

namespace dlock::sim {

/// Thrown into a process that was killed, wherever it waits.
struct Killed {};

/// A process of one thread on a machine of its own. What it runs is real code: it asks for the time
/// and waits, and finds itself here instead of in the kernel.
class Process {
 public:
  Process(std::string name, MachineClock& clock);

  void start(std::function<void()> body);
  /// The one whose code runs now; null outside of all.
  static Process* running();

  /// From inside: waits until woken or `until`, it being `now` by whatever clock the code goes by;
  /// or for less. Throws Killed.
  void wait(Deadline until, Deadline now);
  /// From outside: what its code would read.
  Deadline read_clock();
  /// When so much will have passed on its boot clock.
  Instant instant_after(Span span) const;
  /// From inside, anywhere in the code: the scheduler of the machine may let it rest now.
  void maybe_rest();
  void wake();

  /// The process stands still, as by SIGSTOP; with its machine, as by a suspend.
  void freeze(Span span, bool suspended);
  bool frozen() const { return World::here().now() < thaw_; }
  Instant thaw() const { return thaw_; }
  void kill();
  bool killed() const { return killed_; }
  bool ended() const { return fiber_ && fiber_->ended(); }

  /// It gives something back: a waiter that does has left the queue, and asks anew.
  void gives_back() { ++given_back_; }
  std::uint64_t given_back() const { return given_back_; }

  MachineClock& clock() { return clock_; }
  const std::string& name() const { return name_; }
  /// One rest in so many looks at a clock, so long at most; 0: none.
  void set_rests(std::size_t one_in, Span longest);

  /// What it opens: an fd is an index here. An event, or one for any of several.
  int open(std::vector<int> any_of = {});
  void close(int fd);
  bool raised(int fd) const;
  void set_event(int fd, bool raised);

 private:
  void resume();
  void resume_at(Instant when);

  std::string name_;
  MachineClock& clock_;
  std::unique_ptr<Fiber> fiber_;
  Instant thaw_{};
  bool waiting_ = false;
  std::uint64_t waits_ = 0;
  bool killed_ = false;
  std::uint64_t given_back_ = 0;
  std::uint64_t looks_ = 0;  ///< at a clock since it was resumed
  bool spins_ = false;
  bool read_from_outside_ = false;
  std::size_t rest_one_in_ = 0;
  Span longest_rest_{0};
  struct File {
    bool raised = false;
    std::vector<int> any_of;
  };
  std::vector<File> files_;
  std::vector<int> closed_;
};

}  // namespace dlock::sim
