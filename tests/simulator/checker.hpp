#pragma once

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
/// - the fence of an exclusive holder is larger than all before, and nobody else's ever.
class Checker {
 public:
  Checker(const Plan& plan, std::vector<Server>& servers) : plan_(plan), servers_(servers) {}

  struct Tenure {
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
  std::size_t begins(Tenure tenure);
  void promised(std::size_t tenure, Deadline safe_until);
  /// What it protects has been stopped.
  void ends(std::size_t tenure);
  const Tenure& tenure(std::size_t number) const { return tenures_[number]; }

 private:
  static bool believes(const Tenure& tenure);
  void check_exclusion(const Tenure& tenure);
  void check_promise(const Tenure& tenure);
  void check_fence(const Tenure& tenure);
  static std::string text_of(const Tenure& tenure);

  const Plan& plan_;
  std::vector<Server>& servers_;
  std::vector<Tenure> tenures_;
};

}  // namespace dlock::sim
