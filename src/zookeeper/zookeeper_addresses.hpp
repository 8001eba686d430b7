#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/call_options.hpp"
#include "base/clock.hpp"
#include "base/endpoint.hpp"

namespace dlock {

/// Where the servers of one ZooKeeper are, in digits, since libzookeeper would wait for the
/// resolver however long it takes.
class ZooKeeperAddresses {
 public:
  /// `shown` stands in front of messages.
  ZooKeeperAddresses(std::vector<Endpoint> servers, std::string shown)
      : servers_(std::move(servers)), shown_(std::move(shown)) {}

  /// Servers that are not found are left out. Throws Error{unavailable} if none is found.
  void look_up(const CallOptions& call_options);
  /// The same, once a second at most: servers that were started anew may be found elsewhere. False
  /// if they are where they were, or the resolver does not say.
  bool look_up_again(const CallOptions& call_options);

  /// `ADDRESS:PORT,...` as libzookeeper takes it; in one order, whichever the resolver gives.
  const std::string& list() const { return list_; }
  int count() const;

 private:
  std::string found(const CallOptions& call_options) const;

  std::vector<Endpoint> servers_;
  std::string shown_;
  std::string list_;
  Deadline looked_up_{};
};

}  // namespace dlock
