#include "simulator/process.hpp"

#include <cxxabi.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace dlock::sim {

namespace {

constexpr std::size_t stack_size = 256 * 1024;

/// Unused stacks are kept, because there are many short schedules.
std::vector<std::unique_ptr<char[]>> spare_stacks;

std::unique_ptr<char[]> take_stack() {
  if (spare_stacks.empty()) return std::unique_ptr<char[]>(new char[stack_size]);
  auto stack = std::move(spare_stacks.back());
  spare_stacks.pop_back();
  return stack;
}

Process* the_running = nullptr;

/// How often code may look at a clock while no time passes.
constexpr std::uint64_t most_looks = 100'000;

}  // namespace

/// Runs blocking code on a stack of its own: enter() runs the code until it leaves, and the next
/// enter() continues there. All fibers share one thread.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
    getcontext(&inside_);
    inside_.uc_stack.ss_sp = stack_.get();
    inside_.uc_stack.ss_size = stack_size;
    inside_.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    // makecontext passes ints.
    makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::run), 2,
                static_cast<unsigned int>(self >> 32), static_cast<unsigned int>(self));
  }
  ~Fiber() { spare_stacks.push_back(std::move(stack_)); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Called from outside: returns when the body leaves or ends.
  void enter() {
    exchange_handled();
    swapcontext(&outside_, &inside_);
    exchange_handled();
  }
  /// Called from inside: returns from enter().
  void leave() { swapcontext(&inside_, &outside_); }
  bool ended() const { return ended_; }

 private:
  /// The exceptions in handling, which the C++ runtime keeps for each thread.
  struct Handled {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  };
  static void run(unsigned int high, unsigned int low) {
    auto* fiber = reinterpret_cast<Fiber*>((static_cast<std::uintptr_t>(high) << 32) | low);
    fiber->body_();
    fiber->ended_ = true;
    fiber->leave();
  }
  /// Exchanges the exceptions in handling: a fiber may leave while it handles one, and another may
  /// handle one meanwhile (https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html,
  /// __cxa_eh_globals).
  void exchange_handled() {
    void* const globals = __cxxabiv1::__cxa_get_globals();
    Handled theirs;
    std::memcpy(&theirs, globals, sizeof theirs);
    std::memcpy(globals, &handled_, sizeof handled_);
    handled_ = theirs;
  }

  std::function<void()> body_;
  std::unique_ptr<char[]> stack_;
  ucontext_t inside_{};
  ucontext_t outside_{};
  Handled handled_;
  bool ended_ = false;
};

Process::Process(std::string name, MachineClock& clock) : name_(std::move(name)), clock_(clock) {}

Process::~Process() = default;

bool Process::ended() const { return fiber_ && fiber_->ended(); }

Process* Process::running() { return the_running; }

void Process::start(std::function<void()> body) {
  fiber_ = std::make_unique<Fiber>([body = std::move(body)] {
    try {
      body();
    } catch (const Killed&) {
    }
  });
  waiting_ = true;
  resume_at(World::here().now());
}

void Process::wait(Deadline until, Deadline now) {
  if (killed_) throw Killed{};
  waiting_ = true;
  if (until != never) {
    resume_at(std::max(instant_after(until - now), World::here().now()) + Span(1));
  }
  fiber_->leave();
  if (killed_) throw Killed{};
}

Instant Process::instant_after(Span span) const {
  return clock_.instant_of_boot(clock_.boot(World::here().now()) + span);
}

Deadline Process::read_clock() {
  Process* const before = std::exchange(the_running, this);
  const bool outside = std::exchange(read_from_outside_, true);
  const Deadline now = BootClock::now();
  read_from_outside_ = outside;
  the_running = before;
  return now;
}

void Process::maybe_rest() {
  if (read_from_outside_) return;
  World& world = World::here();
  if (++looks_ == most_looks) {
    world.violated(name_ + " goes round in circles without waiting for anything");
    spins_ = true;
    fiber_->leave();
  }
  if (killed_ || !world.chance().one_in(rest_one_in_)) return;
  const Span span = world.chance().over_scales(Span(1000), longest_rest_);
  world.count("processes that stood still");
  world.tell([&] { return name_ + " rests for " + text_of(span); });
  waiting_ = true;
  freeze(span, false);
  resume_at(thaw_);
  fiber_->leave();
}

void Process::wake() {
  if (waiting_ && !killed_) resume_at(World::here().now());
}

void Process::resume_at(Instant when) {
  World::here().at(when, [this, wait = waits_] {
    if (wait != waits_ || !waiting_) return;
    if (frozen() && !killed_) return resume_at(thaw_);
    resume();
  });
}

void Process::resume() {
  waiting_ = false;
  looks_ = 0;
  ++waits_;
  Process* const before = std::exchange(the_running, this);
  fiber_->enter();
  the_running = before;
}

void Process::freeze(Span span, bool suspended) {
  World& world = World::here();
  const Instant end = world.now() + span;
  if (suspended) {
    clock_.suspended(clock_.boot(end) - clock_.boot(std::max(world.now(), thaw_)));
  }
  thaw_ = std::max(thaw_, end);
}

void Process::kill() {
  if (killed_ || ended()) return;
  killed_ = true;
  // A process that spins would not notice.
  if (fiber_ && waiting_ && !spins_) resume();
}

void Process::set_rests(std::size_t one_in, Span longest) {
  rest_one_in_ = one_in;
  longest_rest_ = longest;
}

int Process::open(std::vector<int> any_of) {
  if (closed_.empty()) {
    closed_.push_back(static_cast<int>(files_.size()));
    files_.emplace_back();
  }
  const int fd = closed_.back();
  closed_.pop_back();
  files_[static_cast<std::size_t>(fd)] = {false, std::move(any_of)};
  return fd;
}

void Process::close(int fd) { closed_.push_back(fd); }

bool Process::raised(int fd) const {
  const File& file = files_[static_cast<std::size_t>(fd)];
  return file.raised || std::any_of(file.any_of.begin(), file.any_of.end(),
                                    [this](int each) { return raised(each); });
}

void Process::set_event(int fd, bool raised) {
  files_[static_cast<std::size_t>(fd)].raised = raised;
  if (raised) wake();
}

}  // namespace dlock::sim
