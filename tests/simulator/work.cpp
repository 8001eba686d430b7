#include "simulator/work.hpp"

#include <algorithm>

namespace dlock::sim {

Work::Work(Process& process, Checker& checker, std::size_t quorum_hold, int stop,
           milliseconds grace)
    : process_(process), checker_(checker), tenure_(quorum_hold), stop_(stop), grace_(grace) {}

void Work::promised(Deadline safe_until) {
  if (over_ || safe_until == safe_until_) return;
  safe_until_ = safe_until;
  checker_.promised(tenure_, safe_until);
  look_at_clock();
}

/// Stops the work when its time has come, or looks again then.
void Work::look_at_clock() {
  if (over_ || process_.killed()) return;
  World& world = World::here();
  const auto left = safe_until_ - grace_ - process_.read_clock();
  if (left <= Span(0) && !process_.frozen()) {
    ++world.statistics().stopped_in_time;
    return stopped("is stopped before its deadline");
  }
  const Instant next = std::max(world.now() + std::max(left, Span(0)) + Span(1), process_.thaw());
  world.at(next, [self = shared_from_this()] { self->look_at_clock(); });
}

void Work::told(const RenewalOutcome& renewal) { renewal.loss ? failed(*renewal.loss) : renewed(); }

void Work::renewed() {
  World& world = World::here();
  ++world.statistics().renewals;
  renewals_ = world.healed() ? renewals_ + 1 : 0;
  world.tell([&] { return process_.name() + " has renewed"; });
}

void Work::failed(const Loss& loss) {
  World& world = World::here();
  world.tell([&] { return process_.name() + " cannot renew: " + loss.reason; });
  if (!loss.final || over_) return;
  ++world.statistics().losses;
  stopped("loses it");
}

void Work::done() { stopped("has done its work"); }

void Work::end() { over_ = true; }

void Work::stopped(const std::string& why) {
  if (over_ || process_.killed()) return;
  over_ = true;
  World::here().tell([&] { return process_.name() + " " + why; });
  checker_.ends(tenure_);
  process_.set_event(stop_, true);
}

}  // namespace dlock::sim
