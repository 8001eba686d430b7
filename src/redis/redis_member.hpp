#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lock/member.hpp"
#include "redis/redis_store.hpp"

namespace dlock {

/// One Redis or Valkey server of a quorum: a master, and no node of a Cluster. What its memory is
/// worth the script keeps below the prefix, and says with each answer
/// (src/redis/lock/quarantine.lua); here that is compared with the process which the link leads to.
/// Where the script names another, this one is recorded; what was granted in the other's name is
/// given back, and asked for anew.
class RedisMember final : public RedisStore, public Member {
 public:
  RedisMember(const Endpoint& server, const std::string& prefix, LinkListener on_link = {},
              AddressListener on_resolved = {});

  Answer vote(const Claim& claim, const Ask& ask, Fence proposal,
              const CallOptions& call_options) override;
  Renewed renew(const Claim& claim, const RenewalTerms& terms,
                const CallOptions& call_options) override;
  std::optional<Grant> rejoin(const Claim& claim, Fence fence,
                              const CallOptions& call_options) override;
  void note_dropped(const LockKey& key, const Token& token) override { note_own({key, token}); }
  LatchState mend_latch(const LockKey& key, const LatchTerms& terms,
                        const std::optional<Displaced>& displaced,
                        const std::vector<ArrivalId>& arrived,
                        const CallOptions& call_options) override;
  std::optional<LatchPart> read_latch(const LockKey& key, std::size_t known, bool listen,
                                      const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  Standing standing() const override { return standing_; }
  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;

 protected:
  /// As RedisStore::run_script(); then the process is known that replied.
  Reply run_script(const ScriptRun& run, const CallOptions& call_options) override;
  Reply call(const LockKey& key, const std::vector<std::string>& arguments,
             const std::string& channel, const CallOptions& call_options) override;

 private:
  /// The process that the open link leads to, as it has said itself.
  struct Process {
    int link = 0;
    std::string run_id;
    /// What it has said is on its disk by then; nothing where it does not tell us.
    std::optional<bool> durable;
  };

  /// Takes off `reply` what a member adds; false if somebody has to record_process for its server
  /// first.
  bool take_standing(Reply& reply);
  void record_process(const LockKey& key, const CallOptions& call_options);
  [[noreturn]] void memory_lost() const;
  void know_process();
  void note_clock(microseconds server, Deadline sent, Deadline received);

  Process process_;
  Standing standing_;
};

}  // namespace dlock
