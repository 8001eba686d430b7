#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lock/member.hpp"
#include "lock/told_grant.hpp"
#include "redis/connection.hpp"
#include "redis/pending.hpp"
#include "redis/protocol_text.hpp"

namespace dlock {

/// What goes for all locks of a store.
struct RedisTerms {
  std::string prefix = "dlock:";  ///< of every key and channel
  int replicas = 0;               ///< how many must have a grant before it counts
  bool may_move = false;          ///< locks may come to live on another server
  bool cluster = false;           ///< the server is a node of a Cluster, and may redirect
  bool member = false;            ///< the server is one of a quorum; see RedisMember
  LinkListener on_link{};         ///< called by whichever thread uses the store
  AddressListener on_resolved{};  ///< likewise
};

/// One run of a script of ours.
struct ScriptRun {
  std::string_view text;
  std::string_view sha1;
  std::vector<std::string> keys;
  std::vector<std::string> arguments;
  std::string channel{};  ///< the whole name of one to listen to, from before the run; or empty
  /// Whether the script is told the word for its server: behind its second argument, and behind the
  /// last one where it is to listen.
  bool placed = false;
};

/// Locks, seals and latches on one Redis or Valkey server: every request is one run of the script
/// in src/redis/lock, or of that in src/redis/latch. Owned and used by one thread at a time. On a
/// node of a Cluster every call but sleep() and inspect() may throw Redirected.
class RedisStore : public virtual Store, public virtual FenceRegister, public virtual Latches {
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
  std::string name() const override { return connection_.name(); }
  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;

  LatchState open_latch(const LockKey& key, const LatchTerms& terms,
                        const CallOptions& call_options) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) override;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) override;
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) override;

  /// Called by ClusterStore: `request` goes out right before everything from here on, in the same
  /// write, and what was said to it last is kept; an empty one ends that.
  void precede_with(Request request);
  const std::optional<Reply>& said_before() const { return said_before_; }
  /// Plain requests and their replies, errors included.
  std::vector<Reply> read(const std::vector<Request>& requests, const CallOptions& call_options);
  /// The keys of this server that match, sorted.
  std::vector<LockKey> matching_keys(const std::vector<std::string>& globs,
                                     const CallOptions& call_options);
  /// Whether there is a link, as far as is known, and how many there have been.
  bool is_open() const { return connection_.is_open(); }
  void close() { connection_.close(); }
  int links() const { return connection_.links(); }

 protected:
  /// Runs a script, by its hash and, where the server does not know it, by its text. With a channel
  /// the reply comes together with a subscription to it. An error reply is returned.
  virtual Reply run_script(const ScriptRun& run, const CallOptions& call_options);
  /// The same with the script of locks; `channel` is the last part of its name. An error reply is
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

  const Connection& connection() const { return connection_; }

  /// A waiter's last answer, by which messages that are published later on that link are dated.
  struct Dated : DatedAnswer {
    int link = 0;
    std::string place;
  };
  /// Of the last refusal.
  const Dated& last_refusal() const { return last_answer_; }

 private:
  /// Whether the server is no longer the master it was, and there may be another.
  bool is_deposed(const Reply& reply) const;
  /// Waits until enough replicas have what was written on `link`. Throws Error{not_replicated},
  /// also where that has broken, for then nobody knows.
  void replicate(const LockKey& key, int link, const CallOptions& call_options);
  /// The word for the server that a request goes to: the script tells those who queued up there
  /// from those who did elsewhere.
  std::string place(const CallOptions& call_options);
  Reply run_once(const ScriptRun& run, bool by_text, const CallOptions& call_options);
  /// Goes on letting the queue in where one call had done its share. A courtesy to the others: that
  /// it fails does not change our own answer.
  void tidy(const LockKey& key, std::int64_t more, const CallOptions& call_options);
  Answer ask_once(const std::optional<Fence>& proposal, const Claim& claim, const Ask& ask,
                  const CallOptions& call_options, bool& more);
  /// The next message on the channel that is listened to, or why there is none.
  std::variant<std::string, Wake::Reason> next_on(const std::string& channel, Deadline until,
                                                  int cancel_fd);
  /// The grant that a message tells a waiter of; nothing if its age cannot be determined.
  std::optional<Grant> grant_told_by(std::string_view message, milliseconds ttl) const;
  /// A connection that listens to a channel may not send plain commands.
  void stop_listening(const CallOptions& call_options);
  /// `requests` with the preceding one at `place`; its reply is kept and taken out.
  std::vector<Reply> exchange_preceded(std::vector<Request>& requests, std::ptrdiff_t place,
                                       const CallOptions& call_options);

  bool may_come_after(const Asked& asked) const;
  ReleaseResult release_once(const Asked& asked, ReleaseMode mode, bool unsure,
                             const CallOptions& call_options);

  /// The last part of the channel on which a token hears of its key: random, for the token itself
  /// must not show, and one a token, for the script must never publish to the one who asks.
  const std::string& channel_of(const Token& token);

  const RedisTerms terms_;
  std::string here_;         ///< the word for the server that the last request went to
  bool sent_twice_ = false;  ///< the last call(): the server may have done it before
  Connection connection_;
  std::shared_ptr<Pending> pending_;
  std::map<Token, std::string> channels_;
  std::string subscribed_;  ///< the whole name of the channel listened to now, if any
  Request preceding_;
  std::optional<Reply> said_before_;
  Dated last_answer_;
};

}  // namespace dlock
