#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lock/acquire.hpp"
#include "simulator/checker.hpp"
#include "simulator/simulated_node_clients.hpp"

namespace dlock::sim {

/// A machine that acquires the lock again and again, as `dlock run` does. It waits or does not,
/// works while the lease is renewed, and releases the lock.
class Client {
 public:
  Client(std::size_t index, const Plan& plan, MachineClock clock, Network& network,
         std::vector<Server>& servers, Checker& checker);

  /// Starts a new process, which continues where the last one ended.
  void start();
  Process& process() { return *processes_.back(); }
  MachineClock& clock() { return clock_; }
  /// The user presses ^C.
  void interrupt();
  /// The wall clock was set while the process runs.
  void wall_stepped(Span by);
  /// From now on nothing goes wrong: one last round must acquire the lock.
  void healed();
  bool done() const { return done_; }
  bool has_held_since_healing() const { return held_since_healing_; }

 private:
  void live();
  bool one_round(std::optional<milliseconds> wait);
  bool one_round(Store& store, std::optional<milliseconds> wait);
  void hold(Store& store, Held held, Instant asked);
  void expect_whole(const Claim& claim);
  void expect_gone(const std::function<bool(const HoldEntry&)>& is_such, const char* did);
  std::unique_ptr<SimulatedNodeClients> new_clients();
  void pause(milliseconds span);
  Claim new_claim();
  Chance& chance() { return World::here().chance(); }

  std::size_t index_;
  const Plan& plan_;
  MachineClock clock_;
  Network& network_;
  std::vector<Server>& servers_;
  Checker& checker_;
  std::vector<std::unique_ptr<Process>> processes_;
  SimulatedNodeClients* nodes_ = nullptr;  ///< of the current round
  std::optional<Owner> owner_;
  std::size_t rounds_ = 0;
  bool healed_ = false;
  bool done_ = false;
  bool held_since_healing_ = false;
  int interrupt_fd_ = -1;  ///< while an acquisition listens to it
  int stepped_fd_ = -1;    ///< while a lease is renewed
  Span steps_{0};          ///< of the wall clock, not yet noticed
};

}  // namespace dlock::sim
