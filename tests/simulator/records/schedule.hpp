#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cas/cas_store.hpp"
#include "simulator/records/place.hpp"

namespace dlock::sim {

/// A few clients that use one key in every way, and checks of what they may believe about it.
class RecordSchedule {
 public:
  RecordSchedule(std::uint64_t seed, PlaceFlaw flaw);

  /// The promise that was broken; empty if none was.
  std::string run();

 private:
  struct Client {
    SimulatedBackend* way = nullptr;
    std::unique_ptr<CasStore> store;
    Claim claim;
    enum class State { idle, waiting, holding } state = State::idle;
    std::optional<Ticket> ticket;
    Fence fence;
    Deadline valid_until{};
    bool busy = false;
    bool queued = false;  ///< as it was told; its connection is open
  };

  void act(Client& client);
  void begin(Client& client);
  void ask(Client& client, bool wait);
  void go_on_waiting(Client& client);
  void go_on_holding(Client& client);
  void release(Client& client);
  void granted(Client& client, const Grant& grant);
  void check_lease(const Client& client);
  void check_end();
  void check_waiter(const Client& client, LockTable& now);
  LockTable table() const;
  void violated(const std::string& what);

  Chance chance_;
  RecordPlace place_;
  std::vector<Client> clients_;
  int depth_ = 0;
  Fence largest_;
  std::set<Token> released_;
  std::string fault_;
};

}  // namespace dlock::sim
