#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "support/clock_control.hpp"
#include "support/fault_proxy.hpp"
#include "support/scene.hpp"

namespace dlock::test {

/// The data that survives kill -9 of a server.
enum class Keeping { nothing, aof_everysec, aof_always };

struct FleetOptions {
  std::size_t servers = 5;
  std::vector<Keeping> keeping{};      ///< by server; those left out keep nothing
  std::vector<std::size_t> clocked{};  ///< these have a running wall clock of their own
  /// Clients connect without proxies if a test needs no link faults. The proxies run in the test's
  /// own process, so they stop when it does.
  bool direct = false;
};

/// N independent servers for a majority, with a fault proxy in front of each. They vote at once, as
/// after an hour of use.
class Fleet {
 public:
  explicit Fleet(FleetOptions options = {});

  std::size_t size() const { return members_.size(); }
  RedisServer& server(std::size_t i) const { return members_[i]->server; }
  FaultProxy& proxy(std::size_t i) const { return members_[i]->proxy; }
  ShimClock& clock(std::size_t i) const { return *members_[i]->clock; }
  /// The URLs of the proxies.
  std::vector<std::string> urls() const;
  /// The URLs of the servers.
  std::vector<std::string> direct_urls() const;

 private:
  struct Member {
    Member(const FleetOptions& options, std::size_t i);
    Keeping keeping;
    std::unique_ptr<ShimClock> clock;
    RedisServer server;
    FaultProxy proxy;
  };

  std::vector<std::unique_ptr<Member>> members_;
};

/// The list of URLs in the form of DLOCK_SERVER.
std::string side_by_side(const std::vector<std::string>& urls);

/// Locks on such servers.
class FleetScene final : public Scene {
 public:
  explicit FleetScene(FleetOptions options = {});
  std::string url() const override;
  std::string kept() const override;
  std::string may_stay(std::vector<std::string> keys) const override;
  /// A slow server may miss a release and keeps a silent waiter for two minutes.
  milliseconds time_to_forget() const override { return milliseconds(130'000); }

  Fleet fleet;

 private:
  bool direct_;
};

/// The number of servers that have a hold of this key.
std::size_t held_on(const Fleet& fleet, const std::string& key);

}  // namespace dlock::test
