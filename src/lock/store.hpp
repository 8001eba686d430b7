#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/wait.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"

namespace dlock {

/// A server that is silent for so long counts as unreachable, whatever it is asked.
constexpr milliseconds silence_of_a_dead_server{5000};

/// How long whoever has no ttl of his own (release, inspect, renew, doctor) waits for an answer.
CallOptions short_call();

/// The bounds within which a place is believed when it tells of leases and times, so that sums and
/// differences of them stay in range, in nanoseconds as well. A clock that counts since 1970 comes
/// to the latest in 2255; the earliest is for a lease that was over when its clock began.
constexpr milliseconds longest_span{1'000'000'000'000};
constexpr microseconds earliest_time = -std::chrono::hours(24 * 366);
constexpr microseconds latest_time{(1LL << 53) - 1};

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

/// The reason to end a sleep between two messages that wake nobody: others may send them without
/// end. Called by each engine's loop that listens.
std::optional<Wake::Reason> end_of_sleep(Deadline until, int cancel_fd);

/// The options of a renewal, beside its claim.
struct RenewalTerms {
  std::optional<milliseconds> ttl{};  ///< a new one; else the lease is as long as before
  /// With which the hold was granted, to whichever store of this place. Where several servers
  /// decide, those that have lost the hold take it down again.
  std::optional<Fence> granted{};
};

/// The result of a renewal. Without a grant the hold has gone; `evicted_by` is who evicted it,
/// where the place knows.
struct Renewed {
  std::optional<Grant> grant{};
  std::optional<Who> evicted_by{};
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

/// The options of a release, beside its claim.
struct ReleaseOptions {
  ReleaseMode mode = ReleaseMode::normal;
  /// Another store of this place has renewed the hold: what that one asked may come after this.
  bool renewed_elsewhere = false;
};

/// The result of a release. `evicted_by`: of a hold that was not there, where the place knows.
struct ReleaseResult {
  Released outcome = Released::not_held;
  std::optional<Who> evicted_by{};
  /// The place has no hold of the token and knows of no eviction: an earlier request may have
  /// released it.
  bool has_gone() const { return outcome == Released::not_held && !evicted_by; }
};

/// Why a store is not asked for a while.
enum class Suspension {
  rest,  ///< nothing will be asked for some seconds: what only costs the place is given up
  fork,  ///< two processes will have this store, and one of them uses it: no thread of it runs
         ///< then, and what was asked and not answered is as if it had never been answered
};

/// The keys that inspect is to look at: exact keys and globs (fnmatch over whole keys);
/// `everything` is the glob `*`.
struct Query {
  std::vector<LockKey> keys;
  std::vector<std::string> globs;
};

/// The holder looks at its files there so often, and touches them: another process may remove them
/// unseen, and a cleaner takes old ones.
constexpr milliseconds look_at_files_every{2000};
/// The same where the last look failed.
constexpr milliseconds pause_after_trouble{1000};

/// What an engine sees that shares this host with the holders: their processes, and changes as they
/// happen. A hold with Liveness::process lives here with a process, has no lease and needs no
/// renewal. One thread at a time.
class HostView {
 public:
  virtual ~HostView() = default;

  /// The command of this claim now runs, in process group `group`: its hold outlives a killed dlock
  /// as long as its work (lock/work.hpp). False if the hold has gone: then the command must not
  /// run.
  virtual bool command_started(const Claim& claim, pid_t group) = 0;

  /// The hold lives with process `pid` from here on, no longer with the one that asked. False if
  /// the hold has gone.
  virtual bool live_with(const Claim& claim, pid_t pid) = 0;

  /// Readable when a hold may have been evicted: take the news, then ask renew() of every hold.
  virtual int news_fd() const = 0;
  virtual void take_news() = 0;

  /// Said on both sides of a fork: from here on process `pid` alone uses this store, and clears up
  /// after it.
  virtual void leave_to(pid_t pid) = 0;

  /// Readable when something that inspect() tells may have changed, and to be read empty then.
  virtual Fd changes() = 0;
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

  /// Extends the lease; also confirms a hold that was handed over, and shows others
  /// `claim.who.command_pid`. Of the claim key and token are enough, unless `terms` says when it
  /// was granted.
  virtual Renewed renew(const Claim& claim, const RenewalTerms& terms,
                        const CallOptions& call_options) = 0;

  /// Of the claim key and token are enough.
  virtual ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                                const CallOptions& call_options) = 0;

  /// Evicts the owner with this fence, or all; answers with those evicted. They learn from their
  /// next renewal or release who `by` is, and from its label why.
  virtual std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                                    const CallOptions& call_options) = 0;

  /// Keys of `query.keys` come first and as given, free ones too; then what the globs match, by
  /// name, without free keys and doubles.
  virtual std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) = 0;

  /// Whether a request for this claim is under way without an answer, on a connection that was
  /// given up, and may yet take the key after it was released elsewhere.
  virtual bool may_be_taken_late(const Claim&) const { return false; }

  /// Until the next request.
  virtual void suspend(Suspension) {}

  /// The sockets that stay connected between requests to a server that may forget its locks when it
  /// ends, -1 for one that is not connected: the holder renews at once when one is closed.
  virtual std::vector<int> connections() const { return {}; }

  /// Null where the engine goes by leases alone.
  virtual HostView* host_view() { return nullptr; }

  /// The errors of single servers of the place, each as it was heard last, that neither this
  /// nor a margin has told before. Error{usage} is for the user who named them.
  virtual std::vector<Error> take_troubles() { return {}; }

  /// What people call it, e.g. `redis://db1:6379/0`; without credentials, escaped.
  virtual std::string name() const = 0;
};

using StorePtr = std::unique_ptr<Store>;

/// `evicted by deploy@ops1 pid 42: REASON`, for people.
std::string evicted_by_text(const Who& by);

/// `redis://db1:6379/0 no longer has it`, or who evicted it.
std::string gone_from(const Store& store, const std::optional<Who>& evicted_by);

/// Whether a hold of this claim must be renewed at all.
bool needs_renewal(Store& store, const Claim& claim);

/// Whether a hold that needs no renewal is still there, as a renewal says; nothing if it could not
/// be asked for at once. For a thread that must not be kept from its deadlines.
std::optional<Renewed> look_at_hold(Store& store, const Claim& claim);

/// The time that a lease loses to clocks that run at different rates, and to rounding: 1 % + 2 ms,
/// the figure of the Redlock page
/// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/).
milliseconds drift_allowance(milliseconds lease);

/// The local deadline of a lease granted by an answer to what was sent at `sent`.
Deadline valid_until(Deadline sent, milliseconds lease);

/// No fence is larger: what is, no double holds exactly, and none of ours ever was.
constexpr std::int64_t largest_fence = (1LL << 53) - 1;

/// Servers that remember for a resource the largest fence that came to it: the resource's side of
/// fencing, for `guard`.
class FenceRegister {
 public:
  virtual ~FenceRegister() = default;

  /// Records `fence` unless a larger one is there; the larger of both. Never forgotten by itself,
  /// and may be repeated. Throws Error{wrong_data} where something else is in its place.
  virtual Fence record_max(const LockKey& resource, Fence fence,
                           const CallOptions& call_options) = 0;
};

}  // namespace dlock
