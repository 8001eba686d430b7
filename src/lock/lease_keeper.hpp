#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock_steps.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A claim that was granted.
struct Held {
  Claim claim;
  Grant grant;
  std::optional<Deadline> failing_since{};  ///< no renewal has succeeded since
  /// What may have passed uncounted since the lease was confirmed.
  std::chrono::nanoseconds hidden{0};
};

/// Why a lease could not be kept.
struct Loss {
  LockKey key;
  bool gone = false;   ///< the engine says so; otherwise it could not be asked in time
  bool final = false;  ///< otherwise renewals fail at this moment, and may succeed yet
  std::string reason;  ///< a sentence part for people: "server unreachable since …: …"
};

/// Renews the leases of some holds from a thread of its own: every third of a ttl, and after a
/// failure again and again until the lease ends. The store is the thread's alone between
/// construction and stop(). Losing is told by an fd; how long the holds are good for at least is an
/// atomic that the supervisor reads itself, so that a renewal stuck anywhere still ends the child
/// in time.
///
/// If the wall clock is set, time may have passed that no clock of this machine has counted: every
/// hold is renewed at once, and one that cannot be is taken to be older by what the clock has
/// moved.
class LeaseKeeper {
 public:
  /// Where `safe_until` is given, that is kept there, on BootClock, for another process to read.
  /// Throws Error{host_refused} if there can be no thread.
  LeaseKeeper(Store& store, std::vector<Held> held,
              std::atomic<BootClock::rep>* safe_until = nullptr);
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  /// Becomes readable when a hold is lost or its lease has run out.
  int lost_fd() const { return lost_.fd(); }
  bool lost() const { return lost_.raised(); }
  /// Readable then, too, and when safe_until() has become earlier; until the news are taken.
  int news_fd() const { return news_.fd(); }
  void take_news() const { news_.clear(); }
  /// Until then all holds are ours, whatever happens; `never` if none has a lease.
  Deadline safe_until() const { return Deadline(BootClock::duration(safe_until_->load())); }
  /// Whether every hold has been confirmed.
  bool confirmed() const { return confirmed_; }
  /// Why a hold is lost, or why renewals fail at this moment.
  std::optional<Loss> loss() const;
  /// Renews everything now rather than when due; returns once that has been tried, or `at_most` has
  /// passed. For whoever is about to be stopped.
  void renew_now(milliseconds at_most);
  /// Ends the thread, breaking off a renewal under way; the store is the caller's again. Returns
  /// the holds with the leases last confirmed, and what is in doubt about them.
  std::vector<Held> stop();

 private:
  struct Upkept {
    Held held;
    Deadline next;  ///< when to renew
  };

  void work();
  void doubt(std::chrono::nanoseconds step);
  void renew(Upkept& lease);
  void ended(Upkept& lease);
  void failed(Upkept& lease, Deadline since, const Error& error);
  void note(const Upkept& lease, bool gone, const std::string& why, bool final);
  Deadline next_due() const;
  void update_safe_until();
  void update_confirmed();

  Store& store_;
  std::vector<Upkept> leases_;  ///< the thread's, until stop()
  ClockSteps steps_;
  Event news_;
  Event lost_;
  Event stop_;
  Event hurry_;
  std::atomic<bool> confirmed_{true};
  std::atomic<BootClock::rep> own_safe_until_{0};
  std::atomic<BootClock::rep>* safe_until_;
  mutable std::mutex mutex_;
  std::condition_variable renewed_;
  std::optional<Loss> loss_;  ///< guarded by mutex_
  int hurries_ = 0;           ///< guarded by mutex_: calls of renew_now not served yet
  std::thread thread_;        ///< last: starts when all else is there
};

/// Where nobody says otherwise, what somebody has to end in before a lease of this ttl may end
/// elsewhere.
milliseconds usual_grace(milliseconds ttl);

/// `lost nightly: REASON`, for people.
std::string lost_text(const LockKey& key, const std::string& reason);

/// How long one request may take for a hold with this ttl: a server silent for longer counts as
/// unreachable.
milliseconds request_timeout(milliseconds ttl);

}  // namespace dlock
