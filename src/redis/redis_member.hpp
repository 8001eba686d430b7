#pragma once

#include <string>
#include <vector>

#include "redis/redis_store.hpp"

namespace dlock {

/// The locks and fence registers of one Redis or Valkey server of a quorum: a master, but not a
/// Cluster node. The script stores below the prefix which process has a whole memory, and tells it
/// with each answer (src/redis/lock/quarantine.lua). This class compares that with the process at
/// the end of the link. If they differ, it records the present process, releases what was granted
/// before, and asks again.
class RedisMember final : public RedisStore {
 public:
  explicit RedisMember(const Endpoint& server,
                       const std::string& prefix = "dlock:", LinkListener on_link = {});

  Standing standing() const override;

 private:
  class Client;
  RedisMember(const Endpoint& server, const RedisTerms& terms);

  /// Strips from the reply what a member's script says about the server's memory.
  ScriptReply send(const ScriptRun& run, const CallOptions& call_options) override;
  /// The same, after the process of the server was recorded.
  ScriptReply send_to_recorded(const ScriptRun& run, const CallOptions& call_options);
  /// Runs another operation on the keys of `run`.
  ScriptReply send_beside(const ScriptRun& run, std::vector<std::string> arguments,
                          const CallOptions& call_options);
  /// Removes from `reply` the items that a member adds; false if the process at the end of the link
  /// must be recorded first.
  bool take_standing(Reply& reply);
  [[noreturn]] void memory_lost() const;

  Client& client_;
};

}  // namespace dlock
