#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A claim that was granted.
struct Held {
  Claim claim;
  Grant grant;
  std::optional<Deadline> failing_since{};  ///< no renewal has succeeded since
  /// The time that may have passed uncounted since the lease was confirmed.
  std::chrono::nanoseconds hidden{0};
  /// Another store than the one that releases it has renewed it; see ReleaseOptions.
  bool renewed_elsewhere = false;
};

/// Why a lease could not be kept.
struct Loss {
  LockKey key;
  bool gone = false;   ///< the engine says so; otherwise it could not be asked in time
  bool final = false;  ///< otherwise renewals fail at this moment, and may succeed yet
  std::string reason;  ///< a sentence part for people: "server unreachable since …: …"
  std::optional<Who> evicted_by{};  ///< with `gone`, where that is known
};

/// Told by RenewalSchedule what becomes of the leases that it renews.
class LeaseListener {
 public:
  virtual ~LeaseListener() = default;
  /// Until `safe_until` all holds are ours, whatever happens; `never` if none has a lease.
  /// `confirmed`: whether every hold has been.
  virtual void promised(Deadline safe_until, bool confirmed) = 0;
  /// `margin` as in Grant.
  virtual void renewed(const LockKey& key, const std::optional<QuorumMargin>& margin) = 0;
  virtual void failed(const Loss& loss) = 0;
};

/// When the leases of some holds are to be renewed, and what comes of it: every third of a ttl, and
/// after a failure again and again until the lease ends. If the wall clock is set, time may have
/// passed that no clock of this machine has counted: every hold is renewed at once, and one that
/// cannot be is taken to be older by what the clock has moved.
///
/// It has no thread: whoever has one for it, as LeaseRenewer does, calls renew_due() at next_due().
class RenewalSchedule {
 public:
  /// `stop_fd` becomes readable to break off a renewal.
  RenewalSchedule(Store& store, std::vector<Held> held, LeaseListener& listener, int stop_fd);

  /// When renew_due() has something to do; `never` if nothing is left to keep up.
  Deadline next_due() const;
  /// Renews what is due; with `all`, everything that is kept up. Returns early when told to stop.
  void renew_due(bool all);
  /// Counts as a renewal of everything that failed for this reason.
  void cannot_renew(const Error& why);
  /// Renews everything now, or, if a connection was closed less than a second ago, a second after
  /// that: some servers close each one early.
  void connection_closed();
  /// The wall clock has moved by `step` against BootClock.
  void doubt(std::chrono::nanoseconds step);
  /// The holds with the leases last confirmed, and what is in doubt about them.
  std::vector<Held> take();

 private:
  struct Upkept {
    Held held;
    Deadline next;  ///< when to renew
    /// How long the next request may take to confirm a hold that was granted by a message. The
    /// connection may have died while it was waited on: another one is tried early.
    milliseconds confirm_within{300};
  };

  void renew(Upkept& lease);
  static milliseconds time_to_answer(const Upkept& lease);
  void ended(Upkept& lease);
  void failed(Upkept& lease, Deadline since, const Error& error);
  void promise();

  Store& store_;
  LeaseListener& listener_;
  int stop_fd_;
  Deadline renewed_early_at_{};
  std::vector<Upkept> leases_;
};

/// The time that one request may take for a hold with this ttl: a server silent for longer counts
/// as unreachable.
milliseconds request_timeout(milliseconds ttl);

}  // namespace dlock
