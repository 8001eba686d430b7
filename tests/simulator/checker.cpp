#include "simulator/checker.hpp"

#include <algorithm>
#include <utility>

namespace dlock::sim {
namespace {

/// So many members have to agree that limit + 1 owners cannot each have as many: any limit + 1 sets
/// of members share one.
std::size_t enough(std::size_t members, Limit limit) {
  if (limit.unlimited()) return members / 2 + 1;
  const auto owners = static_cast<std::size_t>(limit.owners);
  return members * owners / (owners + 1) + 1;
}

bool is_exclusive(Limit limit) { return limit == exclusive; }

}  // namespace

std::string Checker::text_of(const Tenure& tenure) {
  return tenure.process->name() + " with fence " + std::to_string(tenure.fence.value) +
         ", had at " + sim::text_of(tenure.had.time_since_epoch());
}

bool Checker::believes(const Tenure& tenure) {
  return !tenure.over && !tenure.process->killed() &&
         tenure.process->read_clock() < tenure.safe_until;
}

std::size_t Checker::begins(Tenure tenure) {
  tenure.had = World::here().now();
  tenure.lasted = tenure.process->read_clock() < tenure.safe_until;
  check_fence(tenure);
  check_exclusion(tenure);
  check_promise(tenure);
  tenures_.push_back(std::move(tenure));
  return tenures_.size() - 1;
}

void Checker::promised(std::size_t number, Deadline safe_until) {
  Tenure& tenure = tenures_[number];
  const bool believed = believes(tenure);
  tenure.safe_until = safe_until;
  if (!believed) check_exclusion(tenure);
  check_promise(tenure);
}

void Checker::ends(std::size_t number) { tenures_[number].over = true; }

void Checker::check_exclusion(const Tenure& tenure) {
  if (plan_.wild_clocks || !believes(tenure)) return;
  std::set<Owner> owners{tenure.owner};
  Limit least = tenure.limit;
  std::string all = text_of(tenure);
  for (const Tenure& other : tenures_) {
    if (&other == &tenure || other.owner == tenure.owner || !believes(other)) continue;
    owners.insert(other.owner);
    if (least.unlimited() || (!other.limit.unlimited() && other.limit.owners < least.owners)) {
      least = other.limit;
    }
    all += "; " + text_of(other);
  }
  if (least.admits(static_cast<std::int64_t>(owners.size()))) return;
  World::here().violated("too many hold the lock: " + all);
}

void Checker::check_promise(const Tenure& tenure) {
  if (plan_.wild_clocks || tenure.over) return;
  std::vector<Instant> closed;
  for (const Server& server : servers_) closed.push_back(server.closed_until(tenure.token));
  std::sort(closed.rbegin(), closed.rend());
  const Instant end = closed[enough(servers_.size(), tenure.limit) - 1];
  const Instant promised =
      tenure.process->clock().instant_of_boot(tenure.safe_until.time_since_epoch());
  if (promised <= end || promised <= World::here().now()) return;
  World::here().violated("the lock is promised for " + sim::text_of(promised - end) +
                         " more than enough members keep it: " + text_of(tenure));
}

/// The order of tenures is that in which they were had, wherever at most one is had at a time;
/// where clocks are wild, only of those of which one was asked for after the other was had.
void Checker::check_fence(const Tenure& tenure) {
  for (const Tenure& before : tenures_) {
    const bool one_alone = is_exclusive(before.limit) || is_exclusive(tenure.limit);
    if (!one_alone || before.owner == tenure.owner) continue;
    const bool in_order =
        plan_.wild_clocks ? before.had < tenure.asked : before.lasted && tenure.lasted;
    if (before.fence != tenure.fence && !(in_order && before.fence > tenure.fence)) continue;
    World::here().violated("the fences do not grow: " + text_of(before) + "; " + text_of(tenure));
  }
}

}  // namespace dlock::sim
