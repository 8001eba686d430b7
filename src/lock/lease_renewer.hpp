#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
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
  /// How much time may have passed uncounted since the lease was confirmed, because the wall clock
  /// was set.
  std::chrono::nanoseconds clock_jump{0};
  /// Another store than the releasing one may have renewed the hold; see ReleaseOptions.
  bool renewed_elsewhere = false;
};

/// Why a lease could not be renewed.
struct Loss {
  LockKey key;
  bool gone = false;   ///< the engine reported the loss; otherwise dlock could not ask in time
  bool final = false;  ///< the hold is lost; otherwise renewals fail now but may still succeed
  std::string reason;  ///< part of a sentence for users: "server unreachable since …: …"
  std::optional<Who> evicted_by{};  ///< with `gone`, if known
};

/// The outcome of one renewal: the lease is renewed, unless there is a `loss`.
struct RenewalOutcome {
  LockKey key;
  std::optional<QuorumMargin> margin{};  ///< as in Grant; only if it has changed
  std::optional<Loss> loss{};
  std::optional<Who> stop_asked_by{};        ///< as in Renewed
  std::optional<Predecessor> predecessor{};  ///< as in Grant
};

/// A client asks the holder of `key` to stop; its label is the reason.
struct StopRequest {
  LockKey key;
  Who by;
};

/// Decides when some holds are renewed, and keeps the results. It renews a lease after every third
/// of a ttl, and after a failure retries until the lease expires. If the wall clock is set, time
/// may have passed that no clock of this host counted: it renews every hold at once, and takes a
/// hold that it cannot renew to be older by the step of the clock. A hold without a lease is
/// renewed every two seconds, which shows whether it still exists and touches its files.
///
/// It has no thread: its user, such as LeaseRenewer, calls renew_next() at next_due(), until
/// nothing is due.
class RenewalSchedule {
 public:
  /// `stop_fd` becomes readable to interrupt a renewal.
  RenewalSchedule(Store& store, std::vector<Held> held, int stop_fd);

  /// When renew_next() has something to do; `never` if all holds are lost.
  Deadline next_due() const;
  /// Renews the hold that is due first; returns nothing if none is due, or if interrupted.
  std::optional<RenewalOutcome> renew_next();
  /// Treats the lease that is due first as if its renewal had just failed for this reason.
  RenewalOutcome cannot_renew(const Error& why);
  /// No lease expires before this time; `never` if no hold has a lease.
  Deadline safe_until() const;
  /// Whether every hold has been confirmed.
  bool confirmed() const;

  /// Makes every hold due now.
  void renew_now() { renew_by(BootClock::now()); }
  /// The same, after a connection was closed, but at most once a second: some servers close every
  /// connection early.
  void connection_closed();
  /// Takes note that the wall clock has moved by `step` against BootClock.
  void doubt(std::chrono::nanoseconds step);
  /// Moves the holds out, with their last confirmed leases and their clock_jump.
  std::vector<Held> take();

 private:
  struct Upkept {
    Held held;
    Deadline next;  ///< when to renew
    /// How long the next request may take to confirm a hold that a message granted. The connection
    /// may have died during the wait, so the store tries another one early.
    milliseconds confirm_within{300};
  };

  Upkept& first_due();
  void renew_by(Deadline due);
  std::optional<RenewalOutcome> renew(Upkept& lease);
  static milliseconds time_to_answer(const Upkept& lease);
  static RenewalOutcome failed(Upkept& lease, Deadline since, const Error& error);

  Store& store_;
  int stop_fd_;
  Deadline renewed_early_at_{};
  std::vector<Upkept> leases_;
};

/// How long one request may take for a hold with this ttl; a server that is silent for longer
/// counts as unreachable.
milliseconds request_timeout(milliseconds ttl);

/// Renews holds by a RenewalSchedule, leases in its own thread. Only that thread uses the store
/// until stop(). A file descriptor signals a loss. An atomic says until when the holds are valid at
/// least; the supervisor reads it directly, so it stops the child in time even if a renewal hangs.
class LeaseRenewer {
 public:
  /// When the thread starts. Most commands end before a renewal is due, and a thread costs more
  /// than the rest of a short hold.
  enum class Begin {
    now,
    when_due,  ///< the caller calls start() at start_by(), or when news_fd() is readable
  };

  /// If `safe_until` is given, the renewer stores the value of safe_until() there, on BootClock, so
  /// that another process can read it. Throws Error{host_refused} if no thread can be created.
  LeaseRenewer(Store& store, std::vector<Held> held,
               std::atomic<BootClock::rep>* safe_until = nullptr, Begin begin = Begin::now);
  ~LeaseRenewer();
  LeaseRenewer(const LeaseRenewer&) = delete;
  LeaseRenewer& operator=(const LeaseRenewer&) = delete;

  /// When the caller has to call start(); `never` once there is a thread.
  Deadline start_by() const { return thread_.joinable() ? never : schedule_.next_due(); }
  /// Starts the thread, unless there is one. If none can be created, that counts as a failed
  /// renewal: start_by() says when to try again. Holds without a lease get no thread: the engine
  /// sees this host, so start() itself renews what is due, in a moment.
  void start();

  /// Becomes readable when a hold is lost or its lease has expired.
  int lost_fd() const { return lost_.fd(); }
  bool lost() const { return lost_.raised(); }
  /// Readable after a loss, when safe_until() has become earlier, and when there are margins,
  /// predecessors or a stop request to take, until the caller calls take_news(). Before there is a
  /// thread, it is readable when the clock was set, a connection was closed, or HostView has news.
  int news_fd() const { return thread_.joinable() ? news_.fd() : doubts_.get(); }
  void take_news() const { news_.clear(); }
  /// No lease expires before this time; `never` if no hold has a lease.
  Deadline safe_until() const { return Deadline(BootClock::duration(safe_until_->load())); }
  /// Whether every hold has been confirmed.
  bool confirmed() const { return confirmed_; }
  /// Why a hold is lost, or why renewals fail at the moment.
  std::optional<Loss> loss() const;
  /// The margins that have changed since the last call.
  std::vector<std::pair<LockKey, QuorumMargin>> take_margins();
  /// The first request to stop, once.
  std::optional<StopRequest> take_stop_request();
  /// The evicted predecessors of the holds that were confirmed since the last call.
  std::vector<std::pair<LockKey, Predecessor>> take_predecessors();
  /// Renews everything now instead of when due; returns after the attempt, or after `at_most`. For
  /// a caller that is about to be stopped.
  void renew_now(milliseconds at_most);
  /// Interrupts a renewal in progress, or a confirmation that takes long. Then the caller may use
  /// the store again: a release need not wait for the thread to end, as the destructor does.
  /// Returns the holds with their last confirmed leases and their clock_jump.
  std::vector<Held> stop();

 private:
  void begin();
  void watch_store();
  void take_doubts();
  void work();
  void renew_next();
  void report(const RenewalOutcome& renewal);
  void report_loss(const Loss& loss);
  void promise();

  Store& store_;
  Fd clock_set_;                         ///< readable once the wall clock was set
  std::chrono::nanoseconds wall_ahead_;  ///< how far the wall clock was ahead of BootClock
  /// An epoll: readable when the clock was set, a connection of the store was closed, or the
  /// store's HostView has news.
  Fd doubts_;
  Event news_;
  Event lost_;
  Event stop_;
  Event renew_now_;
  std::atomic<bool> confirmed_{true};
  std::atomic<BootClock::rep> own_safe_until_{0};
  std::atomic<BootClock::rep>* safe_until_;
  std::mutex store_in_use_;  ///< the thread holds it unless it sleeps; also guards schedule_
  mutable std::mutex mutex_;
  std::condition_variable renewed_;
  std::optional<Loss> loss_;                                       ///< guarded by mutex_
  std::vector<std::pair<LockKey, QuorumMargin>> changed_margins_;  ///< guarded by mutex_
  std::optional<StopRequest> stop_request_;                        ///< guarded by mutex_
  bool stop_request_taken_ = false;                                ///< guarded by mutex_
  std::vector<std::pair<LockKey, Predecessor>> predecessors_;      ///< guarded by mutex_
  bool renewal_asked_ = false;  ///< guarded by mutex_: a renew_now() is not done yet
  RenewalSchedule schedule_;    ///< only the thread uses it, once there is one, until stop()
  std::thread thread_;          ///< last: it starts when all other members exist
};

}  // namespace dlock
