#include "simulator/process.hpp"

#include <algorithm>
#include <utility>

namespace dlock::sim {
namespace {

Process* the_running = nullptr;

/// How often code may look at a clock while no time passes.
constexpr std::uint64_t most_looks = 100'000;

}  // namespace

Process::Process(std::string name, MachineClock& clock) : name_(std::move(name)), clock_(clock) {}

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
  ++world.statistics().freezes;
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
