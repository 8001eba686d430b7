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
  /// How much time may have passed uncounted since the lease was confirmed.
  std::chrono::nanoseconds hidden{0};
  /// Another store than the releasing one has renewed the hold; see ReleaseOptions.
  bool renewed_elsewhere = false;
};

/// Why a lease could not be renewed.
struct Loss {
  LockKey key;
  bool gone = false;   ///< the engine reported it; otherwise the engine could not be asked in time
  bool final = false;  ///< otherwise renewals fail at the moment but may still succeed
  std::string reason;  ///< part of a sentence for users: "server unreachable since …: …"
  std::optional<Who> evicted_by{};  ///< with `gone`, if known
};

/// RenewalSchedule reports to it what happens to the leases that it renews.
class LeaseListener {
 public:
  virtual ~LeaseListener() = default;
  /// All holds are ours until `safe_until`, whatever happens; `never` if none has a lease.
  /// `confirmed`: whether every hold has been confirmed.
  virtual void promised(Deadline safe_until, bool confirmed) = 0;
  /// A lease was renewed; `margin` as in Grant.
  virtual void renewed(const LockKey& key, const std::optional<QuorumMargin>& margin) = 0;
  virtual void failed(const Loss& loss) = 0;
};

/// Decides when the leases of some holds are renewed, and keeps the results. It renews after every
/// third of a ttl, and after a failure retries until the lease expires. If the wall clock is set,
/// time may have passed that no clock of this host counted: it renews every hold at once, and takes
/// a hold that it cannot renew to be older by the step of the clock.
///
/// It has no thread: its user, such as LeaseRenewer, calls renew_due() at next_due().
class RenewalSchedule {
 public:
  /// `stop_fd` becomes readable to interrupt a renewal.
  RenewalSchedule(Store& store, std::vector<Held> held, LeaseListener& listener, int stop_fd);

  /// When renew_due() has something to do; `never` if no lease is left to renew.
  Deadline next_due() const;
  /// Renews what is due; with `all`, every lease. Returns early if `stop_fd` is readable.
  void renew_due(bool all);
  /// Treats every lease as if its renewal had just failed for this reason.
  void cannot_renew(const Error& why);
  /// Renews everything now, but at most once a second: some servers close every connection early.
  void connection_closed();
  /// The wall clock has moved by `step` against BootClock.
  void doubt(std::chrono::nanoseconds step);
  /// The holds with the leases last confirmed, and their unconfirmed time.
  std::vector<Held> take();

 private:
  struct Upkept {
    Held held;
    Deadline next;  ///< when to renew
    /// How long the next request may take to confirm a hold that a message granted. The connection
    /// may have died during the wait, so another one is tried early.
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

/// How long one request may take for a hold with this ttl; a server that is silent for longer
/// counts as unreachable.
milliseconds request_timeout(milliseconds ttl);

/// Renews the leases of some holds (RenewalSchedule) in its own thread. Only that thread uses the
/// store between construction, or start(), and stop(). A file descriptor signals a loss. An atomic
/// says until when the holds are valid at least; the supervisor reads it directly, so it stops the
/// child in time even if a renewal hangs.
class LeaseRenewer : private LeaseListener {
 public:
  /// When the thread starts. Most commands end before a renewal is due, and a thread costs more
  /// than the rest of a short hold.
  enum class Begin {
    now,
    when_due,  ///< start only if a renewal is due; the caller calls start(), see start_by()
  };

  /// If `safe_until` is given, the value is stored there, on BootClock, so that another process can
  /// read it. Throws Error{host_refused} if no thread can be created.
  LeaseRenewer(Store& store, std::vector<Held> held,
               std::atomic<BootClock::rep>* safe_until = nullptr, Begin begin = Begin::now);
  ~LeaseRenewer() override;
  LeaseRenewer(const LeaseRenewer&) = delete;
  LeaseRenewer& operator=(const LeaseRenewer&) = delete;

  /// When the caller has to call start(); `never` while there is a thread.
  Deadline start_by() const { return started() ? never : upkeep_.next_due(); }
  /// Starts the thread if a renewal is due, the clock was set or a connection was closed. If no
  /// thread can be created, that counts as a failed renewal: start_by() says when to try again.
  void start();
  /// Starts the thread permanently, for a caller that will not check start_by() for a while.
  void start_to_stay();

  /// Becomes readable when a hold is lost or its lease has expired.
  int lost_fd() const { return lost_.fd(); }
  bool lost() const { return lost_.raised(); }
  /// Readable after a loss, when safe_until() has become earlier, and when the thread has ended,
  /// until take_news() is called; events before this call count, too. While there is no thread, it
  /// is readable when the clock was set or a connection was closed, so that the caller has to call
  /// start().
  int news_fd() const { return started() || news_.raised() ? news_.fd() : doubts_.get(); }
  void take_news() const { news_.clear(); }
  /// All holds are ours until then, whatever happens; `never` if none has a lease.
  Deadline safe_until() const { return Deadline(BootClock::duration(safe_until_->load())); }
  /// Whether every hold has been confirmed.
  bool confirmed() const { return confirmed_; }
  /// Why a hold is lost, or why renewals fail at the moment.
  std::optional<Loss> loss() const;
  /// The margins that have changed since the last call; news_fd() is readable if there are any.
  std::vector<std::pair<LockKey, QuorumMargin>> take_margins();
  /// Renews everything now instead of when due; returns after the attempt, or after `at_most`. For
  /// a caller that is about to be stopped.
  void renew_now(milliseconds at_most);
  /// Ends the thread and interrupts a renewal in progress, or a confirmation that takes long. After
  /// it, the caller may use the store again. Returns the holds with the leases last confirmed, and
  /// their unconfirmed time.
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
  int hurries_ = 0;  ///< guarded by mutex_: pending calls of renew_now()
  bool stays_;       ///< written with mutex_ held, by the caller that starts the thread
  std::atomic<bool> resting_{false};  ///< the thread has nothing more to do, and ends
  LockKey first_key_;                 ///< for a loss of all holds
  RenewalSchedule upkeep_;            ///< only the thread uses it, while there is one
  std::thread thread_;                ///< last: it starts when all other members exist
};

/// The default grace: the time that a command gets to stop before its lease may expire.
milliseconds usual_grace(milliseconds ttl);

/// `lost nightly: REASON`, for users.
std::string lost_text(const LockKey& key, const std::string& reason);

}  // namespace dlock
