#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "redis/cluster_router.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// Where the keys of other libraries live: one server, the master that Sentinel names, or the nodes
/// of a Cluster. Owned and used by one thread at a time.
class KeyServers {
 public:
  using Visit = ClusterRouter::Visit;
  virtual ~KeyServers() = default;

  /// Runs `visit` at the server of `key`, and again for as long as there is reason to. Returns
  /// whether one that broke off may have done it before the last.
  virtual bool at(const std::string& key, const CallOptions& call_options, const Visit& visit) = 0;
  /// Runs `visit` at every server that has keys.
  virtual void at_each(const CallOptions& call_options, const Visit& visit) = 0;
  virtual bool is_cluster() const = 0;
  /// Whether anything can ever have been sent.
  virtual bool was_reached() const = 0;
  virtual std::string name() const = 0;
};

/// The server at the end of `route`.
std::unique_ptr<KeyServers> one_server(std::unique_ptr<EndpointResolver> route, RedisTerms terms);
/// The Cluster that has the nodes `seeds`.
std::unique_ptr<KeyServers> cluster_servers(std::vector<Endpoint> seeds, RedisTerms terms);

/// Throws what an error among `replies` means. Of the key `key`, as its user writes it, another
/// kind of data is Error{wrong_data}, which says what it seems to be where `seems` tells.
void check_reply(const RedisClient& client, const std::string& key, const Reply& reply,
                 const std::function<std::string()>& seems);

}  // namespace dlock
