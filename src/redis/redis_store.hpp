#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lock/grant.hpp"
#include "lock/latch.hpp"
#include "lock/member.hpp"
#include "redis/entry_format.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// Locks, fence registers and latches on Redis or Valkey, however the servers are deployed. Every
/// change is one run of the script in src/redis/lock, or of latch.lua or record_max.lua. The
/// functions of Member are for one server of a quorum: see RedisMember. Owned and used by one
/// thread at a time.
class RedisStore : public Member, public Latches {
 public:
  RedisStore(std::unique_ptr<RedisTransport> servers, RedisStoreOptions options)
      : options_(std::move(options)), servers_(std::move(servers)) {}
  /// Locks on the server that `resolver` finds.
  RedisStore(EndpointResolver resolver, const RedisStoreOptions& options)
      : RedisStore(std::make_unique<RedisClient>(std::move(resolver), options), options) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  bool waiter_asks_again() const override { return true; }
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalOptions& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, const Eviction& how,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  bool may_be_taken_late(const Claim& claim) const override {
    return unanswered_.contains({claim.key, claim.token});
  }
  std::vector<int> connections() const override { return servers_->connections(); }
  std::string name() const override { return servers_->name(); }
  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;

  LatchState open_latch(const LockKey& key, const LatchOptions& terms,
                        const CallOptions& call_options) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) override {
    return ask_latch(key, {"arrive", id.text}, false, call_options);
  }
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) override {
    return ask_latch(key, {"read"}, listen, call_options);
  }
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) override;

  std::optional<Grant> rejoin(const Claim& claim, Fence fence,
                              const CallOptions& call_options) override;
  Standing standing() const override { return {}; }

 protected:
  RedisTransport& servers() { return *servers_; }

 private:
  /// A key and token, for which a request may be under way.
  using Asked = std::pair<LockKey, Token>;

  /// A waiter's last refusal. Its clock dates the messages that come later on the same link.
  struct Dated : DatedAnswer {
    LinkId link;
    std::string server;
  };

  /// Run the script of locks; `channel` is the last part of the channel's name. call() returns an
  /// error reply, the others throw it as an Error. Requests that may create a hold use run_noted().
  ScriptReply call(const LockKey& key, const std::vector<std::string>& arguments,
                   const std::string& channel, LinkId* unanswered, const CallOptions& call_options);
  ScriptReply run(const LockKey& key, const std::vector<std::string>& arguments,
                  const CallOptions& call_options);
  ScriptReply run_noted(const Asked& asked, const std::vector<std::string>& arguments,
                        const std::string& channel, const CallOptions& call_options);
  void check(const LockKey& key, const ScriptReply& reply) const;

  /// The result of a renewal or a rejoin. `ttl` is the requested one; 0: the ttl of the grant.
  Renewed renewed_by(const ScriptReply& reply, const Asked& asked, milliseconds ttl, Deadline sent,
                     const CallOptions& call_options);

  /// Runs the latch's script. If an answer is lost, ask_latch() sends the request again on another
  /// link, until the deadline.
  std::optional<LatchState> ask_latch(const LockKey& key, const std::vector<std::string>& arguments,
                                      bool listen, const CallOptions& call_options);
  /// The latch in a reply; nothing if there is none. Throws the Error that an error reply means.
  std::optional<LatchState> latch_from(const LockKey& key, const ScriptReply& reply) const;

  /// Waits until enough replicas have the grant or renewal that was written on `link`. Throws
  /// Error{not_replicated}, also if the link broke, because the state is unknown then.
  void replicate(const LockKey& key, const LinkId& link, const CallOptions& call_options);
  /// Continues to admit waiters after a call that ran out of its budget. This helps only other
  /// clients, so its failure does not change our own answer.
  void tidy(const LockKey& key, std::int64_t more, const CallOptions& call_options);
  /// The grant in a waiter's message; nothing if the message's age cannot be determined.
  std::optional<Grant> grant_in_message(std::string_view text, milliseconds ttl) const;

  /// Reads the holders of a key before an eviction, and nothing else, because the key's other data
  /// may be damaged.
  std::vector<Holder> look_at_holders(const LockKey& key, const CallOptions& call_options);

  /// The result, and the link on which it came.
  std::pair<ReleaseResult, LinkId> release_once(const Asked& asked, const ReleaseOptions& how,
                                                bool unsure, const CallOptions& call_options);

  /// The last part of the channel on which a token's client listens. It is random, because the
  /// token itself must stay secret, and differs for each token, because the script must never
  /// publish to the client that runs it.
  const std::string& channel_of(const Token& token);

  const RedisStoreOptions options_;
  std::unique_ptr<RedisTransport> servers_;
  /// The acquires and rejoins without an answer, with the link on which each first went out.
  std::map<Asked, LinkId> unanswered_;
  std::set<Asked> known_;  ///< requested by this client, or found by a renewal
  std::map<Token, std::string> channels_;
  Dated last_answer_;  ///< the last refusal
};

/// The locks and fence registers of one Redis or Valkey server of a quorum: a master, but not a
/// Cluster node. The script stores which process has a whole memory, and adds it to each answer
/// (src/redis/lock/quarantine.lua). If another process is at the end of the link, the client
/// records that process and repeats an acquire. If the server is quarantined then, the client first
/// releases the grant of the earlier try.
class RedisMember final : public RedisStore {
 public:
  explicit RedisMember(const Endpoint& server,
                       const std::string& prefix = "dlock:", LinkListener on_link = {});

  Standing standing() const override;

 private:
  class Client;
  RedisMember(const Endpoint& server, const RedisStoreOptions& options);

  Client& client_;
};

}  // namespace dlock
