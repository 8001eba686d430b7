#pragma once

#include <string>
#include <vector>

#include "redis/node_address.hpp"

namespace dlock {

/// The master that sentinels name, as Redis' client guidelines have it: the sentinels are asked in
/// turn, each for its share of the time; the one that answered is the first next time; the server
/// then has to say itself that it is a master
/// (https://redis.io/docs/latest/develop/reference/sentinel-clients/).
class SentinelResolver final : public EndpointResolver {
 public:
  /// `master` says how to log in to it; its address is filled in.
  SentinelResolver(std::vector<Endpoint> sentinels, std::string master_name, Endpoint master);

  Endpoint find(const CallOptions& call_options) override;
  bool may_move() const override { return true; }
  /// Another sentinel is asked first then: this one may be cut off from the others, and name a
  /// master of before.
  void came_to_nothing() override;
  std::string name() const override { return name_; }

 private:
  struct Answer {
    Endpoint master;
    std::vector<NodeAddress> others;  ///< sentinels that watch it, too
  };
  Answer ask(const Endpoint& sentinel, const CallOptions& call_options);
  /// Those of the URL may all be replaced while a lock is held.
  void learn(const std::vector<NodeAddress>& others);

  std::vector<Endpoint> sentinels_;  ///< the one that answered last stands first
  std::string master_name_;
  Endpoint master_;
  std::string name_;
};

}  // namespace dlock
