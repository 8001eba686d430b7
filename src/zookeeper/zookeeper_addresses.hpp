#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/wait.hpp"

namespace dlock {

/// Resolves the servers of one ZooKeeper to numeric addresses, because libzookeeper would wait for
/// the resolver without limit.
class ZooKeeperAddresses {
 public:
  /// `shown` is the prefix of messages.
  ZooKeeperAddresses(std::vector<Endpoint> servers, std::string shown)
      : servers_(std::move(servers)), shown_(std::move(shown)), found_(servers_.size()) {}

  /// Looks up all servers and omits those that are not found. Throws Error{unavailable} if none is
  /// found.
  void look_up(const CallOptions& call_options);
  /// Looks up all servers again, at most once a second, because a restarted server may have moved.
  /// A server that is not found keeps its address. False if nothing has changed.
  bool look_up_again(const CallOptions& call_options);

  /// The addresses as `ADDRESS:PORT,...` for libzookeeper, in an order that does not depend on the
  /// resolver.
  const std::string& list() const { return list_; }
  int count() const;

 private:
  /// Throws the last error if no server is found now.
  void find(const CallOptions& call_options);

  std::vector<Endpoint> servers_;
  std::string shown_;
  std::vector<std::set<std::string>> found_;  ///< for each server
  std::string list_;
  Deadline looked_up_{};
};

}  // namespace dlock
