#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lock/grant.hpp"
#include "simulator/plan.hpp"
#include "simulator/process.hpp"
#include "simulator/server.hpp"

namespace dlock::sim {

/// Knows who believes to hold the lock, and what must hold of that at any instant:
/// - of those whose deadline has not passed by their own clock, no more than the limits allow;
/// - nobody believes it for longer than enough members keep others out;
/// - where nothing goes wrong but the clocks, nobody has it before those that have long been in the
/// queue;
/// - the fence of an exclusive holder is larger than all before, and nobody else's ever.
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
    Instant had{};
    Deadline safe_until{};
    bool lasted = false;  ///< its lease had not ended when the code went on
    bool over = false;
  };
  /// Returns the number of the tenure.
  std::size_t begins(QuorumHold quorum_hold);
  void promised(std::size_t quorum_hold, Deadline safe_until);
  /// A process waits for it from now on, until it begins or waits no more.
  void waits(const Process& process);
  void waits_no_more(const Process& process) { waiters_.erase(&process); }
  /// What it protects has been stopped.
  void ends(std::size_t quorum_hold);
  const QuorumHold& quorum_hold(std::size_t number) const { return quorum_holds_[number]; }

 private:
  static bool believes(const QuorumHold& quorum_hold);
  void check_exclusion(const QuorumHold& quorum_hold);
  void check_promise(const QuorumHold& quorum_hold);
  void check_fence(const QuorumHold& quorum_hold);
  void check_order(const QuorumHold& quorum_hold);
  static std::string text_of(const QuorumHold& quorum_hold);

  const Plan& plan_;
  std::vector<Server>& servers_;
  std::vector<QuorumHold> quorum_holds_;
  struct Waiter {
    Instant since{};
    std::uint64_t given_back = 0;  ///< by the process, until then
  };
  std::map<const Process*, Waiter> waiters_;
};

}  // namespace dlock::sim
