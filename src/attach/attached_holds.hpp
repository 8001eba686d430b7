#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The end of a release that another process did with the token of these locks.
enum class ReleaseEnd {
  released,
  refused,  ///< the engine that it asked knows no such hold
  unknown,  ///< no answer came: the release may still take effect, and the end is no loss
};

/// The locks that `acquire --attach` keeps for a script. It renews locks with leases, listens to
/// the engine for locks that live with the script, and reports losses. A lock that the script
/// itself releases is no loss, because `dlock release` announces it before.
class AttachedHolds {
 public:
  AttachedHolds(Store& store, std::vector<Held> held);

  bool empty() const { return held_.empty() && ended_.empty(); }
  /// look() must be called when fd() is readable, and at look_by() at the latest.
  int fd() const;
  Deadline look_by() const;
  /// A sentence about one loss; to be called until it returns nothing. A lease that cannot be
  /// renewed is reported before it ends, so that the script has time to stop.
  std::optional<std::string> look();
  /// A lock was lost, or its lease was reported to be near its end and has not been renewed since.
  bool in_trouble() const { return lost_ || (warned_ && !empty()); }
  /// Until then all locks with leases are held, whatever happens.
  Deadline safe_until() const { return renewer_ ? renewer_->safe_until() : never; }

  /// Announces a release; returns false if the key is not held here.
  bool about_to_be_released(const LockKey& key);
  /// Unless the lock was released, it is kept.
  void release_ended(const LockKey& key, ReleaseEnd end);

  /// Repeats each release until it is answered or the time is over.
  void release(milliseconds at_most);

 private:
  bool has_leases() const;
  Deadline warning_due() const;
  Deadline warn_at() const { return warned_ ? never : warning_due(); }
  std::string lost(const LockKey& key, const std::string& why);
  std::optional<std::string> look_at_leases();
  std::optional<std::string> warn();
  std::optional<LockKey> give_up_leaving();
  std::optional<std::string> look_at_processes();
  bool may_have_been_released(const LockKey& key) const { return leaving_.contains(key); }
  void forget(const LockKey& key);
  void pause();
  void resume();

  Store& store_;
  std::vector<Held> held_;
  std::vector<Held> ended_;         ///< not renewed in time; the engine may still have them
  std::multiset<LockKey> leaving_;  ///< one for each release that may take effect
  std::optional<LeaseRenewer> renewer_;
  bool warned_ = false;
  bool lost_ = false;
  Deadline look_again_ = never;
};

}  // namespace dlock
