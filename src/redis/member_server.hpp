#pragma once

#include <memory>
#include <optional>
#include <string>

#include "redis/redis_store.hpp"

namespace dlock {

/// One Redis or Valkey server of a quorum: a master, and no node of a Cluster. What its memory is
/// worth the script keeps below the prefix, and says with each answer
/// (src/redis/lock/quarantine.lua); here that is compared with the process which the link leads to.
/// Where the script names another, this one is recorded; what was granted in the other's name is
/// given back, and asked for anew.
class MemberServer final : public RedisClient {
 public:
  MemberServer(const Endpoint& server, const RedisTerms& terms);

  /// Of a script that tells it, without what the reply says of the server's memory.
  ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) override;
  Standing standing() const override { return standing_; }

 private:
  /// The process that the open link leads to, as it has said itself.
  struct Process {
    int link = 0;
    std::string run_id;
    /// What it has said is on its disk by then; nothing where it does not tell us.
    std::optional<bool> durable;
  };

  /// Afterwards the process is known that has replied.
  void check_link() override;
  /// run_script(), whichever process is recorded.
  ScriptReply run_for_recorded(const ScriptRun& run, const CallOptions& call_options);
  /// Takes off `reply` what a member adds; false if somebody has to record the process that the
  /// link leads to first.
  bool take_standing(Reply& reply);
  void record_process(const ScriptRun& run, const CallOptions& call_options);
  /// A run beside `run`, about the same keys.
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
