#pragma once

#include <string>

#include "redis/redis_store.hpp"

namespace dlock {

/// The locks and fence registers of one Redis or Valkey server of a quorum: a master, but not a
/// Cluster node. The script stores below the prefix which process has a whole memory, and tells it
/// with each answer (src/redis/lock/quarantine.lua). The client of this class compares that with
/// the process at the end of the link. If they differ, it records the present process, releases
/// all earlier grants, and asks again.
class RedisMember final : public RedisStore {
 public:
  explicit RedisMember(const Endpoint& server,
                       const std::string& prefix = "dlock:", LinkListener on_link = {});

  Standing standing() const override;

 private:
  class Client;
  RedisMember(const Endpoint& server, const RedisTerms& terms);

  Client& client_;
};

}  // namespace dlock
