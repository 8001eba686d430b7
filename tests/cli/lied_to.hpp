#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/lies.hpp"

namespace dlock::test {

/// Servers of a test, with an optional LyingRelay in front of them.
class LiedTo {
 public:
  virtual ~LiedTo() = default;
  /// The URL for dlock without a relay.
  virtual std::string direct_url() const = 0;
  virtual std::vector<Address> servers() const = 0;
  /// The URL for dlock with a relay at these addresses, one for each server.
  virtual std::string url(const std::vector<Address>& relayed) const = 0;
  /// Removes all locks, if only this thread uses the servers.
  virtual void clear() const {}
  /// The key for `letter`; on shared servers no other run uses it.
  virtual std::string key(char letter) const { return std::string(1, letter); }
  /// Which servers lie, and their protocol.
  virtual LiePlan plan() const { return {}; }
  /// The lies of such a server.
  virtual std::vector<Lie> lies(const Address& other_server) const {
    return resp_lies(other_server);
  }
  /// The number of servers that must grant a lock.
  virtual std::size_t needed() const { return 1; }
};

/// Servers of the kind `redis`, `sentinel`, `cluster`, `majority`, `etcd`, `postgres`, `mariadb` or
/// `zookeeper`. Null if the server is not installed.
std::unique_ptr<LiedTo> new_lied_to(const std::string& kind);

/// The kind in DLOCK_TEST_LIES_OF; `redis` if it is not set.
std::string lied_to_kind();
/// Whether DLOCK_TEST_LIES_OF is set, which asks for every lie at every point.
bool tells_all_lies();

}  // namespace dlock::test
