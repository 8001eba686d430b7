#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lock/member.hpp"
#include "lock/told_grant.hpp"
#include "redis/pending.hpp"
#include "redis/protocol_text.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// Locks, seals and latches on one Redis or Valkey server: every request is one run of the script
/// in src/redis/lock, or of that in src/redis/latch. Owned and used by one thread at a time. On a
/// node of a Cluster every call but sleep() and inspect() may throw Redirected.
class RedisStore : public RedisClient,
                   public virtual Store,
                   public virtual FenceRegister,
                   public virtual Latches {
 public:
  /// `questions`: as Connection has them.
  RedisStore(std::unique_ptr<EndpointResolver> route, RedisTerms terms,
             std::shared_ptr<Pending> pending = std::make_shared<Pending>(),
             std::vector<Request> questions = {});

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalTerms& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  std::string name() const override { return server_name(); }
  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;

  LatchState open_latch(const LockKey& key, const LatchTerms& terms,
                        const CallOptions& call_options) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) override;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) override;
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) override;

  /// The keys of this server that match, sorted.
  std::vector<LockKey> matching_keys(const std::vector<std::string>& globs,
                                     const CallOptions& call_options);

 protected:
  /// A run of the script of locks; `channel` is the last part of its name. An error reply is
  /// returned by call() and thrown, as what it means, by run().
  virtual Reply call(const LockKey& key, const std::vector<std::string>& arguments,
                     const std::string& channel, const CallOptions& call_options);
  Reply run(const LockKey& key, const std::vector<std::string>& arguments,
            const CallOptions& call_options);
  void check(const LockKey& key, const Reply& reply) const;

  /// acquire() and renew(), with what a member of a quorum may ask for.
  Answer acquire_with(const std::optional<Fence>& proposal, const Claim& claim, const Ask& ask,
                      const CallOptions& call_options);
  Renewed renew_with(const std::vector<std::string>& arguments, const Asked& asked,
                     const CallOptions& call_options);

  /// Notes that a request goes out that may make a hold, and that an answer came: then no copy of
  /// it can still arrive, unless one went out on an earlier link.
  void note_asked(const Asked& asked);
  void note_answered(const Asked& asked);
  /// Notes that nobody but this store asks for it.
  void note_own(const Asked& asked) { pending_->known.insert(asked); }

  /// A run of the latch's script. Where an answer is lost the request is sent again, on another
  /// link, for as long as the patience lasts.
  std::optional<LatchPart> ask_latch(const LockKey& key, const std::vector<std::string>& arguments,
                                     bool listen, const CallOptions& call_options);
  /// The arguments that open a latch, and displace none.
  std::vector<std::string> opening(const LatchTerms& terms) const;
  /// Whom an arrival is told to: those who listen to a member, always.
  std::string told() const { return terms_.member ? "each" : "last"; }

  /// A waiter's last answer, by which messages that are published later on that link are dated.
  struct Dated : DatedAnswer {
    int link = 0;
    std::string place;
  };
  /// Of the last refusal.
  const Dated& last_refusal() const { return last_answer_; }

 private:
  /// Waits until enough replicas have what was written on `link`. Throws Error{not_replicated},
  /// also where that has broken, for then nobody knows.
  void replicate(const LockKey& key, int link, const CallOptions& call_options);
  /// Goes on letting the queue in where one call had done its share. A courtesy to the others: that
  /// it fails does not change our own answer.
  void tidy(const LockKey& key, std::int64_t more, const CallOptions& call_options);
  Answer ask_once(const std::optional<Fence>& proposal, const Claim& claim, const Ask& ask,
                  const CallOptions& call_options, bool& more);
  /// The grant that a message tells a waiter of; nothing if its age cannot be determined.
  std::optional<Grant> grant_told_by(std::string_view message, milliseconds ttl) const;

  bool may_come_after(const Asked& asked) const;
  ReleaseResult release_once(const Asked& asked, ReleaseMode mode, bool unsure,
                             const CallOptions& call_options);

  /// The last part of the channel on which a token hears of its key: random, for the token itself
  /// must not show, and one a token, for the script must never publish to the one who asks.
  const std::string& channel_of(const Token& token);

  std::shared_ptr<Pending> pending_;
  std::map<Token, std::string> channels_;
  Dated last_answer_;
};

}  // namespace dlock
