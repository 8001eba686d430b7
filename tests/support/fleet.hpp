#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "support/clock_control.hpp"
#include "support/fault_proxy.hpp"
#include "support/redis_server.hpp"
#include "support/scene.hpp"

namespace dlock::test {

/// What is left of a server's data after kill -9.
enum class Keeping { nothing, aof_everysec, aof_always };

struct FleetOptions {
  std::size_t servers = 5;
  std::vector<Keeping> keeping{};      ///< one for each server; of who is left out nothing is kept
  std::vector<std::size_t> clocked{};  ///< these have a wall clock of their own, which goes on
  std::vector<std::size_t> on_port{};  ///< whose proxy listens on a port, where a reset is one
  /// They vote at once, as servers that have been in use for an hour; else they are as new.
  bool old = true;
  /// Without the proxies, where nothing is done to the links: they are all in the process of the
  /// test, and stand still when it does.
  bool direct = false;
};

/// Independent servers of which a majority decides, and a fault proxy in front of each.
class Fleet {
 public:
  explicit Fleet(FleetOptions options = {});

  std::size_t size() const { return members_.size(); }
  RedisServer& server(std::size_t i) const { return members_[i]->server; }
  FaultProxy& proxy(std::size_t i) const { return members_[i]->proxy; }
  bool has_clock(std::size_t i) const { return members_[i]->clock != nullptr; }
  ShimClock& clock(std::size_t i) const { return *members_[i]->clock; }
  Keeping keeping(std::size_t i) const { return members_[i]->keeping; }
  /// Through the proxies.
  std::vector<std::string> urls() const;
  /// Without the proxies.
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

/// As DLOCK_SERVER has them.
std::string side_by_side(const std::vector<std::string>& urls);

/// Locks on such servers.
class FleetScene final : public Scene {
 public:
  explicit FleetScene(FleetOptions options = {});
  std::string url() const override;
  std::string kept() const override;
  std::string may_stay(std::vector<std::string> keys) const override;
  /// A slow server may not hear of a release, and keeps a waiter that does not ask for two minutes.
  milliseconds time_to_forget() const override { return milliseconds(130'000); }

  Fleet fleet;

 private:
  bool direct_;
};

}  // namespace dlock::test
