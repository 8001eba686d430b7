#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lock/grant.hpp"
#include "simulator/plan.hpp"
#include "simulator/process.hpp"
#include "simulator/server.hpp"

namespace dlock::sim {

/// Knows which processes believe to hold the lock, and checks at any instant:
/// - No more of them than the limits allow have a deadline in the future of their own clock.
/// - No process believes it for longer than enough nodes keep others out.
/// - If only the clocks are wrong, no process overtakes one that has long been in the queue.
/// - The fence of an exclusive holder is larger than all before, and different from all others.
class Checker {
 public:
  Checker(const Plan& plan, std::vector<Server>& servers) : plan_(plan), servers_(servers) {}

  struct QuorumHold {
    Process* process = nullptr;
    Token token;
    Owner owner;
    Limit limit;
    Fence fence;
    Instant asked{};  ///< when its acquisition began
    Instant acquired{};
    Deadline safe_until{};
    bool lasted = false;  ///< its lease still lasted when the code went on
    bool over = false;
  };
  /// Returns the number of the hold.
  std::size_t begins(QuorumHold hold) {
    hold.acquired = World::here().now();
    hold.lasted = hold.process->read_clock() < hold.safe_until;
    check_fence(hold);
    check_exclusion(hold);
    check_promise(hold);
    check_order(hold);
    holds_.push_back(std::move(hold));
    return holds_.size() - 1;
  }
  void promised(std::size_t number, Deadline safe_until) {
    QuorumHold& hold = holds_[number];
    const bool believed = believes(hold);
    hold.safe_until = safe_until;
    if (!believed) check_exclusion(hold);
    check_promise(hold);
  }
  /// The process waits from now on, until it begins to hold or waits no more.
  void waits(const Process& process) {
    waiters_[&process] = {World::here().now(), process.releases()};
  }
  void waits_no_more(const Process& process) { waiters_.erase(&process); }
  /// The work under this hold has been stopped.
  void ends(std::size_t number) { holds_[number].over = true; }
  const QuorumHold& hold(std::size_t number) const { return holds_[number]; }

 private:
  /// The number of nodes that must agree, so that limit + 1 owners cannot each have as many: any
  /// limit + 1 sets of that size share a node.
  static std::size_t enough(std::size_t nodes, Limit limit) {
    if (limit.unlimited()) return nodes / 2 + 1;
    const auto owners = static_cast<std::size_t>(limit.owners);
    return nodes * owners / (owners + 1) + 1;
  }
  static bool believes(const QuorumHold& hold) {
    return !hold.over && !hold.process->killed() && hold.process->read_clock() < hold.safe_until;
  }
  void check_exclusion(const QuorumHold& hold) {
    if (plan_.wild_clocks || !believes(hold)) return;
    std::set<Owner> owners{hold.owner};
    Limit least = hold.limit;
    std::string all = text_of(hold);
    for (const QuorumHold& other : holds_) {
      if (&other == &hold || other.owner == hold.owner || !believes(other)) continue;
      owners.insert(other.owner);
      if (least.unlimited() || (!other.limit.unlimited() && other.limit.owners < least.owners)) {
        least = other.limit;
      }
      all += "; " + text_of(other);
    }
    if (least.admits(static_cast<std::int64_t>(owners.size()))) return;
    World::here().violated("too many hold the lock: " + all);
  }
  void check_promise(const QuorumHold& hold) {
    if (plan_.wild_clocks || hold.over) return;
    std::vector<Instant> closed;
    for (const Server& server : servers_) closed.push_back(server.closed_until(hold.token));
    std::sort(closed.rbegin(), closed.rend());
    const Instant end = closed[enough(servers_.size(), hold.limit) - 1];
    const Instant promised =
        hold.process->clock().instant_of_boot(hold.safe_until.time_since_epoch());
    if (promised <= end || promised <= World::here().now()) return;
    World::here().violated("the lock is promised for " + sim::text_of(promised - end) +
                           " more than enough nodes keep it: " + text_of(hold));
  }
  /// Holds are ordered by the time of acquisition if only one can exist at a time. With wild clocks
  /// this applies only if one was asked for after the other was acquired.
  void check_fence(const QuorumHold& hold) {
    for (const QuorumHold& before : holds_) {
      const bool one_alone = before.limit == exclusive || hold.limit == exclusive;
      if (!one_alone || before.owner == hold.owner) continue;
      const bool in_order =
          plan_.wild_clocks ? before.acquired < hold.asked : before.lasted && hold.lasted;
      if (before.fence != hold.fence && !(in_order && before.fence > hold.fence)) continue;
      World::here().violated("the fences do not grow: " + text_of(before) + "; " + text_of(hold));
    }
  }
  void check_order(const QuorumHold& hold) {
    waits_no_more(*hold.process);
    if (!plan_.orderly) return;
    World& world = World::here();
    const Span unsure = plan_.order_unsure(world.now().time_since_epoch());
    for (const auto& [process, waiter] : waiters_) {
      const Instant since = waiter.since;
      if (hold.asked + unsure < since) world.count("acquired before one who asked later");
      const bool in_queue = process->releases() == waiter.releases;
      if (!in_queue || since + unsure >= hold.asked) continue;
      world.violated(text_of(hold) + ", and " + process->name() + " waits who asked " +
                     sim::text_of(hold.asked - since) + " earlier");
    }
  }
  static std::string text_of(const QuorumHold& hold) {
    return hold.process->name() + " with fence " + std::to_string(hold.fence.value) +
           ", acquired at " + sim::text_of(hold.acquired.time_since_epoch());
  }

  const Plan& plan_;
  std::vector<Server>& servers_;
  std::vector<QuorumHold> holds_;
  struct Waiter {
    Instant since{};
    std::uint64_t releases = 0;  ///< releases by the process, until then
  };
  std::map<const Process*, Waiter> waiters_;
};

}  // namespace dlock::sim
