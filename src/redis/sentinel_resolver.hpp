#pragma once

#include <string>
#include <vector>

#include "redis/node_address.hpp"

namespace dlock {

/// Finds the master that sentinels name, by Redis' client guidelines. It asks the sentinels in
/// turn, each for its share of the time; the one that answered is asked first the next time. The
/// server itself must then confirm that it is a master
/// (https://redis.io/docs/latest/develop/reference/sentinel-clients/).
class SentinelResolver final : public EndpointResolver {
 public:
  /// `master` holds its login; the resolver fills in its address.
  SentinelResolver(std::vector<Endpoint> sentinels, std::string master_name, Endpoint master);

  Endpoint find(const CallOptions& call_options) override;
  bool may_move() const override { return true; }
  /// Moves another sentinel to the front: the first one may be cut off from the others and name a
  /// former master.
  void came_to_nothing() override;
  std::string name() const override { return name_; }

 private:
  struct Answer {
    Endpoint master;
    std::vector<NodeAddress> others;  ///< other sentinels that watch the master
  };
  Answer ask(const Endpoint& sentinel, const CallOptions& call_options);
  /// Adds sentinels, since all of the URL's may be replaced while a lock is held.
  void learn(const std::vector<NodeAddress>& others);

  std::vector<Endpoint> sentinels_;  ///< the one that answered last is first
  std::string master_name_;
  Endpoint master_;
  std::string name_;
};

}  // namespace dlock
