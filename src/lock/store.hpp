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

/// A server that is silent for this long counts as unreachable, whatever the request.
constexpr milliseconds silence_of_a_dead_server{5000};

/// The options of requests that have no ttl of their own (release, inspect, renew, doctor).
CallOptions short_call();

/// How to ask for a key.
struct Ask {
  bool wait = false;               ///< join the queue unless granted
  std::optional<Ticket> ticket{};  ///< the position from an earlier answer to the same claim
  /// With `wait`: the caller will ask again before it sleeps; see Store::waiter_asks_again().
  bool asks_again = false;
  /// At one of several servers: a new owner's fence is max(last + 1, `proposal` limited to a minute
  /// from the server's clock). If the token already has a hold, the answer has that hold's fence.
  std::optional<Fence> proposal{};
};

/// Why a waiter's sleep ended.
struct Wake {
  enum class Reason {
    due,      ///< the given time has come
    granted,  ///< the lock was handed over; unless `grant` is confirmed, call renew()
    changed,  ///< the obstacle ends sooner than reported: sleep until `ask_again_at` at most
    interrupted,
  };
  Reason why = Reason::due;
  Deadline ask_again_at{};
  /// For `granted`: the grant, if it is confirmed already or if the age of the message is known. It
  /// is valid until its own short lease expires, confirmed or not.
  std::optional<Grant> grant{};
};

/// Whether and why a sleep ends after a message that does not wake the waiter. The sleep loop of
/// each engine calls it after such a message, because such messages may come without end.
std::optional<Wake::Reason> end_of_sleep(Deadline until, int cancel_fd);

/// The options of a renewal.
struct RenewalOptions {
  std::optional<milliseconds> ttl{};  ///< a new ttl; otherwise the lease keeps its length
  /// The fence with which any store of this engine granted the hold. With several servers, those
  /// that have lost the hold record it again.
  std::optional<Fence> granted{};
};

/// The result of a renewal. Without a grant the hold is gone; `evicted_by` is set if the engine
/// knows that it was evicted.
struct Renewed {
  std::optional<Grant> grant{};
  std::optional<Who> evicted_by{};
  /// With a grant: the client that asked the holder to stop, if one did; its label is the reason.
  std::optional<Who> stop_asked_by{};
};

enum class Released {
  yes,         ///< the hold existed and is released
  left_queue,  ///< the token was only waiting
  not_held,    ///< the token holds nothing (any more)
};

enum class ReleaseMode {
  normal,        ///< a hold with a min-hold goes into cooldown until that has passed
  ignore_floor,  ///< the command never started: --min-hold does not count
};

/// The options of a release.
struct ReleaseOptions {
  ReleaseMode mode = ReleaseMode::normal;
  /// Another store of this engine has renewed the hold: its requests may arrive after this one.
  bool renewed_elsewhere = false;
  std::optional<int> exit_code{};  ///< of the command, for LastGrant
};

/// The result of a release. `evicted_by` is set for an evicted hold, if the engine knows.
struct ReleaseResult {
  Released outcome = Released::not_held;
  std::optional<Who> evicted_by{};
  /// The engine has no hold of the token and knows of no eviction: an earlier request may have
  /// released it.
  bool has_gone() const { return outcome == Released::not_held && !evicted_by; }
};

/// How a client ends the holds of others.
struct Eviction {
  std::optional<Fence> fence{};  ///< only the owner with this fence
  Who by{};                      ///< its label is the reason
  /// Only ask the holders to stop: each of them keeps its hold until its work has ended.
  bool asks = false;
};

/// Why a store is unused for a while.
enum class Suspension {
  rest,  ///< no request for some seconds: close what only costs the server resources
  fork,  ///< two processes will have this store, and only one uses it: none of its threads runs
         ///< then, and pending requests count as never answered
};

/// The keys that inspect() reports: exact keys and globs (fnmatch over whole keys); `everything` is
/// the glob `*`.
struct Query {
  std::vector<LockKey> keys;
  std::vector<std::string> globs;
  bool free = false;  ///< the globs also match free keys with a remembered last holder
  bool lists(const KeyState& state) const { return state.in_use() || (free && state.last); }
};

/// An engine's view of its own host: the holders' processes, and changes as they happen. A hold
/// with Liveness::process lasts as long as a process, has no lease and needs no renewal. One thread
/// at a time may use it.
class HostView {
 public:
  virtual ~HostView() = default;

  /// The command of this claim now runs in process group `group`: if dlock is killed, the hold
  /// lasts as long as the work (lock/work.hpp). False if the hold is gone: then the command must
  /// not run.
  virtual bool command_started(const Claim& claim, pid_t group) = 0;

  /// The hold now lasts as long as process `pid`, instead of the process that asked. False if the
  /// hold is gone.
  virtual bool live_with(const Claim& claim, pid_t pid) = 0;

  /// Readable when a hold may have been evicted: call take_news(), then renew() every hold.
  virtual int news_fd() const = 0;
  virtual void take_news() = 0;

  /// Both sides of a fork call it: from now on only process `pid` uses this store and cleans up
  /// after it.
  virtual void leave_to(pid_t pid) = 0;

  /// Readable when a result of inspect() may have changed; the caller then reads all events.
  virtual Fd changes() = 0;
};

/// The place where locks live; every engine implements it. One thread at a time may use it. All
/// requests may be repeated, because a token names its hold. "Held by another" and "no longer ours"
/// are answers; failures are an Error.
class Store {
 public:
  virtual ~Store() = default;

  virtual Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) = 0;

  /// Whether a waiter has to ask twice before it sleeps: the engine prepares its notifications only
  /// with the second request, because most claims are granted by the first.
  virtual bool waiter_asks_again() const { return false; }

  /// Sleeps after an acquire() with `wait` was refused, until `until` or until there is a
  /// notification for this claim. Throws Error{unavailable} if the notification channel broke:
  /// acquire again, with the ticket.
  virtual Wake sleep(const Claim& claim, Deadline until, int cancel_fd) = 0;

  /// Extends the lease. It also confirms a hold that was handed over, and publishes
  /// `claim.who.command_pid`. The claim needs only key and token, unless `options` has `granted`.
  virtual Renewed renew(const Claim& claim, const RenewalOptions& options,
                        const CallOptions& call_options) = 0;

  /// The claim needs only key and token.
  virtual ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                                const CallOptions& call_options) = 0;

  /// Evicts the owners that `how` means, or asks them to stop, and returns them. Their next renewal
  /// (or, for an eviction, release) tells them the client and its reason. A holder in another
  /// library's layout, or in cooldown, cannot be asked.
  virtual std::vector<Holder> evict(const LockKey& key, const Eviction& how,
                                    const CallOptions& call_options) = 0;

  /// The keys of `query.keys` come first and in their order, including free ones; then the matches
  /// of the globs by name, without duplicates and, unless asked for, free keys.
  virtual std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) = 0;

  /// Whether a request for this claim is still unanswered on a closed connection, so that it may
  /// take the key after the hold was released elsewhere.
  virtual bool may_be_taken_late(const Claim&) const { return false; }

  /// Suspends the store until the next request.
  virtual void suspend(Suspension) {}

  /// The sockets that stay connected between requests to a server that may forget its locks when it
  /// stops; -1 for an unconnected one. The holder renews at once when one is closed.
  virtual std::vector<int> connections() const { return {}; }

  /// The engine's view of this host; null if the engine uses only leases.
  virtual HostView* host_view() { return nullptr; }

  /// The last error of each server that neither this function nor a margin has reported yet.
  /// Error{usage} is meant for the user who configured the servers.
  virtual std::vector<Error> take_troubles() { return {}; }

  /// The name for users, e.g. `redis://db1:6379/0`; without credentials, escaped.
  virtual std::string name() const = 0;
};

using StorePtr = std::unique_ptr<Store>;

/// `evicted by deploy@ops1 pid 42: REASON`, for users.
std::string evicted_by_text(const Who& by);
/// `asked to stop by deploy@ops1 pid 42: REASON`, for users.
std::string stop_asked_by_text(const Who& by);

/// `redis://db1:6379/0 no longer has it`, or who evicted it.
std::string gone_text(const Store& store, const std::optional<Who>& evicted_by);

/// Whether a hold of this claim needs renewals.
bool needs_renewal(Store& store, const Claim& claim);

/// The largest possible fence: above it, the numbers of Lua (doubles) are not exact.
constexpr std::int64_t largest_fence = (1LL << 53) - 1;

/// Remembers the largest fence that a resource has seen: the resource's side of fencing, for
/// `guard`.
class FenceRegister {
 public:
  virtual ~FenceRegister() = default;

  /// Records `fence` unless a larger one is recorded, and returns the larger of both. The record
  /// never expires, and the request may be repeated. Throws Error{wrong_data} if something else is
  /// stored under the resource's name.
  virtual Fence record_max(const LockKey& resource, Fence fence,
                           const CallOptions& call_options) = 0;
};

}  // namespace dlock
