#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lock/lease_renewer.hpp"
#include "lock/store.hpp"

namespace dlock {

/// What came of a release that others did with our token.
enum class ReleaseEnd {
  released,
  refused,  ///< the engine they asked knows no such hold
  unknown,  ///< no answer: it may still be done
};

/// The locks that `acquire --attach` keeps for a script: renews them where they have leases,
/// listens where they live with the script, and finds out about losses. A lock that the script
/// releases itself is none: whoever is about to says so before.
class AttachedHolds {
 public:
  AttachedHolds(Store& store, std::vector<Held> held);

  bool empty() const { return held_.empty() && ended_.empty(); }
  /// look() when it is readable, and at this moment at the latest.
  int fd() const;
  Deadline look_by() const;
  /// What has been lost, for people; called again until it says nothing. A lease that cannot be
  /// renewed is told before it ends, so that the script has time to stop.
  std::optional<std::string> look();
  /// Something has been lost, or was told to be near its end and has not been renewed since.
  bool in_trouble() const { return lost_ || (warned_ && !empty()); }
  /// Until then what is held here is ours, as far as it has leases.
  Deadline safe_until() const { return renewer_ ? renewer_->safe_until() : never; }

  /// False if the key is not held here.
  bool about_to_be_released(const LockKey& key);
  /// A lock that may still be there is kept on.
  void release_ended(const LockKey& key, ReleaseEnd end);

  /// Repeats until answered, or the time is over.
  void give_back(milliseconds at_most);

 private:
  /// A release that others do with our token.
  struct Leaving {
    int under_way = 0;
    Deadline done_by{};  ///< those that have ended cannot take effect later
  };

  bool has_leases() const;
  Deadline warning_due() const;
  Deadline warn_at() const { return warned_ ? never : warning_due(); }
  std::string lost(const LockKey& key, const std::string& why);
  std::optional<std::string> look_at_leases();
  std::optional<std::string> warn();
  std::optional<LockKey> give_up_leaving();
  std::optional<std::string> look_at_processes();
  bool may_have_been_released(const Held& held) const;
  void forget(const LockKey& key);
  void pause();
  void resume();

  Store& store_;
  std::vector<Held> held_;
  std::vector<Held> ended_;  ///< not renewed in time; the engine may have them yet
  std::map<LockKey, Leaving> leaving_;
  std::optional<LeaseRenewer> renewer_;
  bool warned_ = false;
  bool lost_ = false;
  Deadline look_again_ = never;
};

}  // namespace dlock
