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
#include "redis/protocol_text.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// Locks, fence registers and latches on Redis or Valkey, however its servers are deployed: every
/// request is one run of the script in src/redis/lock, or of that in src/redis/latch. What a Member
/// has beside a Store needs `servers` that are one of a quorum: see redis_member(). Owned and used
/// by one thread at a time.
class RedisStore final : public Member, public Latches {
 public:
  RedisStore(std::unique_ptr<RedisTransport> servers, RedisTerms terms)
      : terms_(std::move(terms)), servers_(std::move(servers)) {}
  /// On the server at the end of `route`.
  RedisStore(std::unique_ptr<EndpointResolver> route, const RedisTerms& terms)
      : RedisStore(std::make_unique<RedisClient>(std::move(route), terms), terms) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalTerms& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  bool may_be_taken_late(const Claim& claim) const override {
    return unanswered_.contains({claim.key, claim.token});
  }
  std::vector<int> connections() const override { return servers_->connections(); }
  std::string name() const override { return servers_->name(); }
  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;

  LatchState open_latch(const LockKey& key, const LatchTerms& terms,
                        const CallOptions& call_options) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) override;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) override;
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) override;

  Answer vote(const Claim& claim, const Ask& ask, Fence proposal,
              const CallOptions& call_options) override;
  std::optional<Grant> rejoin(const Claim& claim, Fence fence,
                              const CallOptions& call_options) override;
  void note_dropped(const LockKey& key, const Token& token) override;
  std::vector<Holder> look_at_holders(const LockKey& key, const CallOptions& call_options) override;
  std::vector<Holder> evict_seen(const LockKey& key, const std::vector<Holder>& seen, const Who& by,
                                 const CallOptions& call_options) override;
  Standing standing() const override { return servers_->standing(); }

 private:
  /// One key and token: what a request can be under way for.
  using Asked = std::pair<LockKey, Token>;

  /// A waiter's last answer, by which messages that are published later on that link are dated.
  struct Dated : DatedAnswer {
    LinkId link;
    std::string server;
  };

  /// A run of the script of locks; `channel` is the last part of its name. An error reply is
  /// returned by call() and thrown, as what it means, by run().
  ScriptReply call(const LockKey& key, const std::vector<std::string>& arguments,
                   const std::string& channel, LinkId* unanswered, const CallOptions& call_options);
  ScriptReply run(const LockKey& key, const std::vector<std::string>& arguments,
                  const CallOptions& call_options, LinkId* unanswered = nullptr);
  void check(const LockKey& key, const ScriptReply& reply) const;

  /// acquire(), with the fence that a client of a quorum proposes.
  Answer acquire_with(const std::optional<Fence>& proposal, const Claim& claim, const Ask& ask,
                      const CallOptions& call_options);
  /// `ttl`: what was asked for, or 0 for the one that the hold was granted with.
  Renewed renew_with(const std::vector<std::string>& arguments, const Asked& asked,
                     milliseconds ttl, const CallOptions& call_options,
                     LinkId* unanswered = nullptr);

  /// The entry of a request that may make a hold, from before it goes out.
  LinkId& note_asked(const Asked& asked);
  /// An answer has come: what is entered now can still arrive; if that is nothing, no copy can.
  void note_answered(const Asked& asked);

  /// A run of the latch's script. If an answer is lost the request is sent again, on another link,
  /// until the deadline.
  std::optional<LatchState> ask_latch(const LockKey& key, const std::vector<std::string>& arguments,
                                      bool listen, const CallOptions& call_options);
  /// Nothing where there is no latch; throws what an error reply means.
  std::optional<LatchState> latch_from(const LockKey& key, const ScriptReply& reply) const;

  /// Waits until enough replicas have the grant or renewal that was written on `link`. Throws
  /// Error{not_replicated}, also where that has broken, for then nobody knows.
  void replicate(const LockKey& key, const LinkId& link, const CallOptions& call_options);
  /// Goes on letting the queue in where one call had done its share. A courtesy to the others: that
  /// it fails does not change our own answer.
  void tidy(const LockKey& key, std::int64_t more, const CallOptions& call_options);
  Answer ask_once(const std::optional<Fence>& proposal, const Claim& claim, const Ask& ask,
                  const CallOptions& call_options, bool& more);
  /// The grant that a message tells a waiter of; nothing if its age cannot be determined.
  std::optional<Grant> grant_told_by(std::string_view text, const LinkId& link,
                                     milliseconds ttl) const;

  /// Where a request for it went out that has no answer; none where there is no such request.
  LinkId link_unanswered(const Asked& asked) const;
  /// The result, and the link on which it came.
  std::pair<ReleaseResult, LinkId> release_once(const Asked& asked, ReleaseMode mode, bool unsure,
                                                const CallOptions& call_options);

  /// The last part of the channel on which a token hears of its key: random, for the token itself
  /// must not show, and one a token, for the script must never publish to the one who asks.
  const std::string& channel_of(const Token& token);

  const RedisTerms terms_;
  std::unique_ptr<RedisTransport> servers_;
  /// The acquires under way, and on which link each first went out.
  std::map<Asked, LinkId> unanswered_;
  std::set<Asked> known_;  ///< asked for here, or found by a renewal
  std::map<Token, std::string> channels_;
  Dated last_answer_;  ///< the last refusal
};

}  // namespace dlock
