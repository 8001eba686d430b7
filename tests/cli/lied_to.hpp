#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/lying_relay.hpp"

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
  /// Nothing is held there any more.
  virtual void clear() const {}
  /// A name for each `letter`.
  virtual std::string key(char letter) const { return std::string(1, letter); }
  /// Which of the servers lie.
  virtual LiePlan plan() const { return {}; }
  /// How many servers have to grant a lock.
  virtual std::size_t needed() const { return 1; }
};

/// `redis`, `sentinel`, `cluster` or `majority`.
std::unique_ptr<LiedTo> new_lied_to(const std::string& kind);

/// The kind in DLOCK_TEST_LIES_OF; `redis` if it is not set.
std::string lied_to_kind();
/// Whether DLOCK_TEST_LIES_OF is set, which asks for every lie at every point.
bool tells_all_lies();

}  // namespace dlock::test
