#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/call_options.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"

namespace dlock {

/// A server that is silent for so long counts as unreachable, whatever it is asked.
constexpr milliseconds silence_of_a_dead_server{5000};

/// How long whoever has no ttl of his own (release, inspect, renew, doctor) waits for an answer.
CallOptions short_call();

/// How to ask for a key.
struct Ask {
  bool wait = false;             ///< join the queue if it is not had
  std::optional<Ticket> ticket;  ///< the place of an earlier answer to the same claim
  /// With `wait`: it will ask again before it sleeps, and needs no news until then.
  bool asks_again = false;
};

/// Why a waiter's sleep ended.
struct Wake {
  enum class Reason {
    due,      ///< the time given has come
    granted,  ///< the lock was handed over; unless `grant` says it is, renew() confirms it
    changed,  ///< what blocks ends sooner than was told: sleep until `ask_again_at` at most
    interrupted,
  };
  Reason why = Reason::due;
  Deadline ask_again_at{};
  /// Of `granted`, where it was confirmed already; or where it is known how old the news is: good
  /// until its own, short lease ends, confirmed or not.
  std::optional<Grant> grant{};
};

/// On how many of several servers a hold stands.
struct QuorumMargin {
  std::size_t held = 0;
  std::size_t needed = 0;
  std::size_t servers = 0;
  std::string missing;  ///< the others, and what is wrong with them, for people
  /// Some of those are no servers of their own, which was not said before: whoever named them
  /// should know.
  bool misnamed = false;
};

enum class Released {
  yes,         ///< the hold was there and has gone
  left_queue,  ///< it was only waiting
  not_held,    ///< the token holds nothing (any more)
};

enum class ReleaseMode {
  normal,        ///< a hold with a floor stays, kept, until its floor
  ignore_floor,  ///< the command never started: --min-hold does not count
};

/// What inspect is to look at: exact keys and globs (fnmatch over whole keys); `everything` is the
/// glob `*`.
struct Query {
  std::vector<LockKey> keys;
  std::vector<std::string> globs;
};

/// A place where locks live: what every engine answers. One thread at a time. All requests may be
/// repeated: a token names its hold. "Held by another" and "no longer ours" are answers; trouble is
/// an Error.
class Store {
 public:
  virtual ~Store() = default;

  virtual Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) = 0;

  /// After an acquire with `wait` was refused: sleeps until `until`, or until there is news for
  /// this claim. Throws Error{unavailable} if the news channel broke: acquire again, with the
  /// ticket.
  virtual Wake sleep(const Claim& claim, Deadline until, int cancel_fd) = 0;

  /// How long one of the first waiters sleeps at most before it asks again: it notices so that
  /// those before it do not confirm what they are granted, if no message may have told it.
  virtual milliseconds longest_sleep_near_head() const { return milliseconds(5000); }

  /// Renews by `ttl`, or by the grant's own; also confirms a hold that was handed over. Nothing if
  /// the token holds nothing.
  virtual std::optional<Grant> renew(const LockKey& key, const Token& token,
                                     std::optional<milliseconds> ttl,
                                     const CallOptions& call_options) = 0;

  /// Renews by its own ttl a hold that was granted with `fence`, to whichever store of this place.
  /// Where several servers decide, those that have lost it take it down again.
  virtual std::optional<Grant> renew_hold(const Claim& claim, Fence fence,
                                          const CallOptions& call_options);

  /// Said when another store of this place has upheld a hold that is released by this one: what
  /// that one asked may come after the release.
  virtual void renewed_by_other_connection(const Claim&) {}

  virtual Released release(const LockKey& key, const Token& token, ReleaseMode mode,
                           const CallOptions& call_options) = 0;

  /// Evicts the owner with this fence, or all; answers with those evicted. They learn from
  /// evicted_by() who `by` is, and from its label why.
  virtual std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                                    const CallOptions& call_options) = 0;

  /// Who evicted a hold that renew() or release() has found gone, where the engine knows.
  virtual std::optional<Who> evicted_by(const LockKey& key, const Token& token) const;

  /// Keys of `query.keys` come first and as given, free ones too; then what the globs match, by
  /// name, without free keys and doubles.
  virtual std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) = 0;

  /// The command of this claim now runs as process group `group`: a hold with Liveness::process
  /// outlives a killed dlock until that group has gone. False if the hold has gone: then the
  /// command must not run. Engines that go by leases show `claim.who.command_pid` to others from
  /// the next renewal on.
  virtual bool command_started(const Claim& claim, pid_t group);

  /// A hold with Liveness::process lives with process `pid` from here on, no longer with the one
  /// that asked. False if the hold has gone. Nothing to do for engines that go by leases.
  virtual bool live_with(const Claim& claim, pid_t pid);

  /// Said before a fork that leave_to() follows: no thread of this store runs then. What was asked
  /// and not answered is as if it had never been answered.
  virtual void before_fork() {}

  /// Said when nothing will be asked for some seconds: what only costs the place is given up.
  virtual void rest() {}

  /// Said on both sides of a fork: from here on process `pid` alone uses this store, and clears up
  /// after it.
  virtual void leave_to(pid_t pid);

  /// Whether a hold of this claim must be renewed at all.
  virtual bool needs_renewal(const Claim& claim) const = 0;

  /// Readable when a hold that needs no renewal may have been thrown out: take the news, then ask
  /// renew() of every hold. -1 for engines that go by leases, where the next renewal tells.
  virtual int news_fd() const { return -1; }
  virtual void take_news() {}

  /// Where several servers decide: on how many the hold of this claim stood when all were last
  /// asked; those that have had no time to answer count among them.
  virtual std::optional<QuorumMargin> margin(const Claim& claim);

  /// Where several servers decide: what was wrong with single ones, each as it was heard last, and
  /// not told of before, by this or as a margin. Error{usage} is for whoever named them.
  virtual std::vector<Error> take_troubles() { return {}; }

  /// Readable when something that inspect() tells may have changed, and to be read empty then; an
  /// empty one where the engine cannot tell.
  virtual Fd changes() { return {}; }

  /// What people call it, e.g. `redis://db1:6379/0`; without credentials, escaped.
  virtual std::string name() const = 0;
};

using StorePtr = std::unique_ptr<Store>;

/// `evicted by deploy@ops1 pid 42: REASON`, for people.
std::string evicted_by_text(const Who& by);

/// `redis://db1:6379/0 no longer has it`, or who evicted it.
std::string gone_from(const Store& store, const LockKey& key, const Token& token);

/// Whether a hold that needs no renewal is still there; nothing if it could not be asked for at
/// once. For a thread that must not be kept from its deadlines.
std::optional<bool> is_still_held(Store& store, const Claim& claim);

/// What a lease loses to clocks that run at different rates, and to rounding: 1 % + 2 ms, the
/// figure of the Redlock page
/// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/).
milliseconds drift_allowance(milliseconds lease);

/// The local deadline of a lease granted by an answer to what was sent at `sent`.
Deadline valid_until(Deadline sent, milliseconds lease);

}  // namespace dlock
