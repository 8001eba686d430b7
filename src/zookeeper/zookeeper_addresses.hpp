#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/wait.hpp"

namespace dlock {

/// Where the servers of one ZooKeeper are, in digits, since libzookeeper would wait for the
/// resolver however long it takes.
class ZooKeeperAddresses {
 public:
  /// `shown` stands in front of messages.
  ZooKeeperAddresses(std::vector<Endpoint> servers, std::string shown)
      : servers_(std::move(servers)), shown_(std::move(shown)), found_(servers_.size()) {}

  /// Servers that are not found are left out. Throws Error{unavailable} if none is found.
  void look_up(const CallOptions& call_options);
  /// The same, once a second at most: servers that were started anew may be found elsewhere. Those
  /// that are not found now are taken to be where they were. False if nothing has changed.
  bool look_up_again(const CallOptions& call_options);

  /// `ADDRESS:PORT,...` as libzookeeper takes it; in one order, whichever the resolver gives.
  const std::string& list() const { return list_; }
  int count() const;

 private:
  /// Throws the last trouble if no server is found now.
  void find(const CallOptions& call_options);

  std::vector<Endpoint> servers_;
  std::string shown_;
  std::vector<std::set<std::string>> found_;  ///< of each server
  std::string list_;
  Deadline looked_up_{};
};

}  // namespace dlock
