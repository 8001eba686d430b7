#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simulator/world.hpp"

namespace dlock::sim {

class Fiber;

/// Thrown into a process that was killed, wherever it waits.
struct Killed {};

/// A process with one thread on a machine of its own. It runs real code, whose clock reads and
/// waits come here instead of to the kernel.
class Process {
 public:
  Process(std::string name, MachineClock& clock);
  ~Process();

  void start(std::function<void()> body);
  /// The process whose code runs now; null outside of all.
  static Process* running();

  /// Called from inside: waits until woken or `until`, or for less. `now` is the time by the clock
  /// that the code uses. Throws Killed.
  void wait(Deadline until, Deadline now);
  /// Called from outside: the time that its code would read.
  Deadline read_clock();
  /// The instant at which so much will have passed on its boot clock.
  Instant instant_after(Span span) const;
  /// Called from inside, anywhere in the code: the scheduler of the machine may let it rest now.
  void maybe_rest();
  void wake();

  /// Freezes the process, as SIGSTOP does, or with its machine, as a suspend does.
  void freeze(Span span, bool suspended);
  bool frozen() const { return World::here().now() < thaw_; }
  Instant thaw() const { return thaw_; }
  void kill();
  bool killed() const { return killed_; }
  bool ended() const;

  /// Notes a release: a waiter that releases has left the queue, and asks anew.
  void note_release() { ++releases_; }
  std::uint64_t releases() const { return releases_; }

  MachineClock& clock() { return clock_; }
  const std::string& name() const { return name_; }
  /// Rests at one of `one_in` looks at a clock, for at most `longest`; 0: never.
  void set_rests(std::size_t one_in, Span longest);

  /// Opens an event, or one that is raised with any of several. An fd is an index here.
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
  std::uint64_t releases_ = 0;
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
