#pragma once

#include <string>
#include <vector>

#include "redis/announced.hpp"
#include "redis/route.hpp"

namespace dlock {

/// The master that sentinels name, as Redis' client guidelines have it: the sentinels are asked in
/// turn, each for its share of the time; the one that answered is the first next time; the server
/// then has to say itself that it is a master
/// (https://redis.io/docs/latest/develop/reference/sentinel-clients/).
class SentinelRoute final : public Route {
 public:
  /// `master` says how to log in to it; its address is filled in.
  SentinelRoute(std::vector<Endpoint> sentinels, std::string master_name, Endpoint master);

  Endpoint find(const Patience& patience) override;
  bool may_move() const override { return true; }
  std::string name() const override { return name_; }

 private:
  struct Answer {
    Endpoint master;
    std::vector<Announced> others;  ///< sentinels that watch it, too
  };
  Answer ask(const Endpoint& sentinel, const Patience& patience);
  /// Those of the URL may all be replaced while a lock is held.
  void learn(const std::vector<Announced>& others);

  std::vector<Endpoint> sentinels_;  ///< the one that answered last stands first
  std::string master_name_;
  Endpoint master_;
  std::string name_;
};

}  // namespace dlock
