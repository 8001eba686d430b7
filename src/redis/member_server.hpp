#pragma once

#include <memory>
#include <optional>
#include <string>

#include "redis/redis_store.hpp"

namespace dlock {

/// One Redis or Valkey server of a quorum: a master, but not a Cluster node. The script stores
/// below the prefix which process has a whole memory, and tells it with each answer
/// (src/redis/lock/quarantine.lua). This class compares that with the process at the end of the
/// link. If they differ, it records the present process, releases what was granted before, and asks
/// again.
class MemberServer final : public RedisClient {
 public:
  MemberServer(const Endpoint& server, const RedisTerms& terms);

  /// Strips from the reply what a member's script says about the server's memory.
  ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) override;
  Standing standing() const override { return standing_; }

 private:
  /// The process at the end of the open link, as it described itself.
  struct Process {
    int link = 0;
    std::string run_id;
    /// Whether its replies follow fsync; nothing if it does not tell.
    std::optional<bool> durable;
  };

  /// Reads which process has replied, if the link is new.
  void check_link() override;
  /// run_script(), after the process of the server was recorded.
  ScriptReply run_for_recorded(const ScriptRun& run, const CallOptions& call_options);
  /// Removes from `reply` the items that a member adds; false if the process at the end of the link
  /// must be recorded first.
  bool take_standing(Reply& reply);
  void record_process(const ScriptRun& run, const CallOptions& call_options);
  /// An additional run for the same keys as `run`.
  ScriptReply run_beside(const ScriptRun& run, std::vector<std::string> arguments,
                         const CallOptions& call_options);
  [[noreturn]] void memory_lost() const;
  void note_clock(microseconds server, Deadline sent, Deadline received);

  Process process_;
  Standing standing_;
};

/// The locks and fence registers of one server of a quorum.
std::unique_ptr<RedisStore> redis_member(const Endpoint& server, const std::string& prefix,
                                         LinkListener on_link = {});

}  // namespace dlock
