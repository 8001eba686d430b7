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
  std::size_t begins(QuorumHold hold);
  void promised(std::size_t hold, Deadline safe_until);
  /// The process waits from now on, until it begins to hold or waits no more.
  void waits(const Process& process);
  void waits_no_more(const Process& process) { waiters_.erase(&process); }
  /// The work under this hold has been stopped.
  void ends(std::size_t hold);
  const QuorumHold& hold(std::size_t number) const { return holds_[number]; }

 private:
  static bool believes(const QuorumHold& hold);
  void check_exclusion(const QuorumHold& hold);
  void check_promise(const QuorumHold& hold);
  void check_fence(const QuorumHold& hold);
  void check_order(const QuorumHold& hold);
  static std::string text_of(const QuorumHold& hold);

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
