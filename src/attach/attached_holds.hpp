#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Keeps the locks of `acquire --attach` for a script: renews them and reports losses. A lock that
/// the script releases is no loss: `dlock release` announces the release, and from then on
/// AttachedHolds does not renew the lock.
class AttachedHolds {
 public:
  AttachedHolds(Store& store, std::vector<Held> held);

  bool empty() const { return held_.empty() && ended_.empty(); }
  /// The daemon calls look() when fd() is readable, and at look_by() at the latest.
  int fd() const { return renewer_ ? renewer_->news_fd() : -1; }
  Deadline look_by() const;
  /// Returns a sentence about one loss; call it until it returns nothing. A lease that was not
  /// renewed in time counts as lost before it expires, so that the script has time to stop.
  std::optional<std::string> look();
  /// The first request to stop, once.
  std::optional<StopRequest> take_stop_request();
  /// Whether a lock was lost, or look() reported a lease near its end that is not renewed yet.
  bool in_trouble() const { return lost_ || (warned_ && !empty()); }
  /// No lease expires before this time; `never` if there are no leases.
  Deadline safe_until() const { return renewer_ ? renewer_->safe_until() : never; }

  /// Stops renewing a lock that a client is about to release; returns false if it is not kept here.
  /// If the client reports no result, the lock ends with its lease, or with the script.
  bool about_to_be_released(const LockKey& key);
  /// Forgets the lock: the client reports that the engine has released it.
  void released(const LockKey& key);
  /// Renews the lock again, if its lease lasts: the client reports that it was not released.
  void not_released(const LockKey& key);

  /// Releases all locks; repeats each request until the engine answers or the time is over.
  void release(milliseconds at_most);

 private:
  Deadline warning_due() const;
  void pause();
  void resume();

  Store& store_;
  std::vector<Held> held_;
  /// Locks not renewed in time, or about to be released; the engine may still have them.
  std::vector<Held> ended_;
  std::optional<LeaseRenewer> renewer_;
  bool warned_ = false;
  bool lost_ = false;
  bool stop_asked_ = false;
};

}  // namespace dlock
