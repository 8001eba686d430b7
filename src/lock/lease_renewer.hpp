#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/wait.hpp"
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

/// Keeps up the leases of some holds (RenewalSchedule) from a thread of its own. The store is the
/// thread's alone between construction, or start(), and stop(). Losing is told by an fd; how long
/// the holds are good for at least is an atomic that the supervisor reads itself, so that a renewal
/// stuck anywhere still ends the child in time.
class LeaseRenewer : private LeaseListener {
 public:
  /// When the thread begins. Most commands end before a renewal is due, and a thread costs more
  /// than the rest of a short hold.
  enum class Begin {
    now,
    when_due,  ///< only for what is due; whoever made it calls start(), see start_by()
  };

  /// Where `safe_until` is given, that is kept there, on BootClock, for another process to read.
  /// Throws Error{host_refused} if there can be no thread.
  LeaseRenewer(Store& store, std::vector<Held> held,
               std::atomic<BootClock::rep>* safe_until = nullptr, Begin begin = Begin::now);
  ~LeaseRenewer() override;
  LeaseRenewer(const LeaseRenewer&) = delete;
  LeaseRenewer& operator=(const LeaseRenewer&) = delete;

  /// When start() has to be called; `never` while there is a thread.
  Deadline start_by() const { return started() ? never : upkeep_.next_due(); }
  /// Starts the thread if something is due, the clock was set or a connection was closed. Where
  /// there can be none, that counts as a renewal that failed: start_by() says when to try again.
  void start();
  /// Starts it to stay: nobody will look at start_by() for a while.
  void start_to_stay();

  /// Becomes readable when a hold is lost or its lease has run out.
  int lost_fd() const { return lost_.fd(); }
  bool lost() const { return lost_.raised(); }
  /// Readable then, too, when safe_until() has become earlier, and when the thread has ended; until
  /// the news are taken, also those of a thread that has ended before this was called. Else, while
  /// there is no thread: when the clock was set or a connection was closed, so that start() has to
  /// be called.
  int news_fd() const { return started() || news_.raised() ? news_.fd() : doubts_.get(); }
  void take_news() const { news_.clear(); }
  /// Until then all holds are ours, whatever happens; `never` if none has a lease.
  Deadline safe_until() const { return Deadline(BootClock::duration(safe_until_->load())); }
  /// Whether every hold has been confirmed.
  bool confirmed() const { return confirmed_; }
  /// Why a hold is lost, or why renewals fail at this moment.
  std::optional<Loss> loss() const;
  /// The margins that have changed since the last call; there are news when there are any.
  std::vector<std::pair<LockKey, QuorumMargin>> take_margins();
  /// Renews everything now rather than when due; returns once that has been tried, or `at_most` has
  /// passed. For whoever is about to be stopped.
  void renew_now(milliseconds at_most);
  /// Ends the thread, breaking off a renewal under way, or a confirmation that takes long; the
  /// store is the caller's again. Returns the holds with the leases last confirmed, and what is in
  /// doubt about them.
  std::vector<Held> stop();

 private:
  void promised(Deadline safe_until, bool confirmed) override;
  void renewed(const LockKey& key, const std::optional<QuorumMargin>& margin) override;
  void failed(const Loss& loss) override;
  bool started() const { return thread_.joinable() && !resting_; }
  void begin();
  void watch_connections();
  void take_doubts();
  bool can_stop_thread();
  void work();

  Store& store_;
  ClockSteps steps_;
  Fd doubts_;  ///< epoll: readable when the clock was set, or a connection of the store was closed
  Event news_;
  Event lost_;
  Event stop_;
  Event hurry_;
  std::atomic<bool> confirmed_{true};
  std::atomic<BootClock::rep> own_safe_until_{0};
  std::atomic<BootClock::rep>* safe_until_;
  mutable std::mutex mutex_;
  std::condition_variable renewed_;
  std::optional<Loss> loss_;                                       ///< guarded by mutex_
  std::map<LockKey, std::size_t> margins_;                         ///< guarded by mutex_
  std::vector<std::pair<LockKey, QuorumMargin>> changed_margins_;  ///< guarded by mutex_
  int hurries_ = 0;                   ///< guarded by mutex_: calls of renew_now not served yet
  bool stays_;                        ///< written with mutex_ by whoever starts the thread
  std::atomic<bool> resting_{false};  ///< the thread has done its work, and ends
  LockKey first_key_;                 ///< for a loss that is of all holds
  RenewalSchedule upkeep_;            ///< the thread's, while there is one
  std::thread thread_;                ///< last: starts when all else is there
};

/// Where nobody says otherwise, what somebody has to end in before a lease of this ttl may end
/// elsewhere.
milliseconds usual_grace(milliseconds ttl);

/// `lost nightly: REASON`, for people.
std::string lost_text(const LockKey& key, const std::string& reason);

}  // namespace dlock
