#include "simulator/checker.hpp"

#include <algorithm>
#include <utility>

namespace dlock::sim {
namespace {

/// The number of members that must agree, so that limit + 1 owners cannot each have as many: any
/// limit + 1 sets of that size share a member.
std::size_t enough(std::size_t members, Limit limit) {
  if (limit.unlimited()) return members / 2 + 1;
  const auto owners = static_cast<std::size_t>(limit.owners);
  return members * owners / (owners + 1) + 1;
}

bool is_exclusive(Limit limit) { return limit == exclusive; }

}  // namespace

std::string Checker::text_of(const QuorumHold& quorum_hold) {
  return quorum_hold.process->name() + " with fence " + std::to_string(quorum_hold.fence.value) +
         ", had at " + sim::text_of(quorum_hold.had.time_since_epoch());
}

bool Checker::believes(const QuorumHold& quorum_hold) {
  return !quorum_hold.over && !quorum_hold.process->killed() &&
         quorum_hold.process->read_clock() < quorum_hold.safe_until;
}

std::size_t Checker::begins(QuorumHold quorum_hold) {
  quorum_hold.had = World::here().now();
  quorum_hold.lasted = quorum_hold.process->read_clock() < quorum_hold.safe_until;
  check_fence(quorum_hold);
  check_exclusion(quorum_hold);
  check_promise(quorum_hold);
  check_order(quorum_hold);
  quorum_holds_.push_back(std::move(quorum_hold));
  return quorum_holds_.size() - 1;
}

void Checker::promised(std::size_t number, Deadline safe_until) {
  QuorumHold& quorum_hold = quorum_holds_[number];
  const bool believed = believes(quorum_hold);
  quorum_hold.safe_until = safe_until;
  if (!believed) check_exclusion(quorum_hold);
  check_promise(quorum_hold);
}

void Checker::ends(std::size_t number) { quorum_holds_[number].over = true; }

void Checker::check_exclusion(const QuorumHold& quorum_hold) {
  if (plan_.wild_clocks || !believes(quorum_hold)) return;
  std::set<Owner> owners{quorum_hold.owner};
  Limit least = quorum_hold.limit;
  std::string all = text_of(quorum_hold);
  for (const QuorumHold& other : quorum_holds_) {
    if (&other == &quorum_hold || other.owner == quorum_hold.owner || !believes(other)) continue;
    owners.insert(other.owner);
    if (least.unlimited() || (!other.limit.unlimited() && other.limit.owners < least.owners)) {
      least = other.limit;
    }
    all += "; " + text_of(other);
  }
  if (least.admits(static_cast<std::int64_t>(owners.size()))) return;
  World::here().violated("too many hold the lock: " + all);
}

void Checker::check_promise(const QuorumHold& quorum_hold) {
  if (plan_.wild_clocks || quorum_hold.over) return;
  std::vector<Instant> closed;
  for (const Server& server : servers_) closed.push_back(server.closed_until(quorum_hold.token));
  std::sort(closed.rbegin(), closed.rend());
  const Instant end = closed[enough(servers_.size(), quorum_hold.limit) - 1];
  const Instant promised =
      quorum_hold.process->clock().instant_of_boot(quorum_hold.safe_until.time_since_epoch());
  if (promised <= end || promised <= World::here().now()) return;
  World::here().violated("the lock is promised for " + sim::text_of(promised - end) +
                         " more than enough members keep it: " + text_of(quorum_hold));
}

void Checker::waits(const Process& process) {
  waiters_[&process] = {World::here().now(), process.given_back()};
}

void Checker::check_order(const QuorumHold& quorum_hold) {
  waits_no_more(*quorum_hold.process);
  if (!plan_.orderly) return;
  World& world = World::here();
  const Span unsure = plan_.order_unsure(world.now().time_since_epoch());
  for (const auto& [process, waiter] : waiters_) {
    const Instant since = waiter.since;
    if (quorum_hold.asked + unsure < since) ++world.statistics().in_turn;
    const bool in_queue = process->given_back() == waiter.given_back;
    if (!in_queue || since + unsure >= quorum_hold.asked) continue;
    world.violated(text_of(quorum_hold) + ", and " + process->name() + " waits who asked " +
                   sim::text_of(quorum_hold.asked - since) + " earlier");
  }
}

/// Holds are ordered by the time of acquisition if only one can exist at a time. With wild clocks
/// this applies only if one was asked for after the other was acquired.
void Checker::check_fence(const QuorumHold& quorum_hold) {
  for (const QuorumHold& before : quorum_holds_) {
    const bool one_alone = is_exclusive(before.limit) || is_exclusive(quorum_hold.limit);
    if (!one_alone || before.owner == quorum_hold.owner) continue;
    const bool in_order =
        plan_.wild_clocks ? before.had < quorum_hold.asked : before.lasted && quorum_hold.lasted;
    if (before.fence != quorum_hold.fence && !(in_order && before.fence > quorum_hold.fence))
      continue;
    World::here().violated("the fences do not grow: " + text_of(before) + "; " +
                           text_of(quorum_hold));
  }
}

}  // namespace dlock::sim
