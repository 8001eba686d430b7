#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lock/lease_renewer.hpp"
#include "output/log.hpp"
#include "supervise/supervise.hpp"

namespace dlock {

/// The locks that `run` holds while its command runs. It renews them, tells the supervisor if one
/// is lost, and releases them. Holds without a lease end early only if they are evicted, which the
/// engine reports, or if their files are removed.
class HeldLocks final : public StopSource {
 public:
  using OnPredecessor = std::function<void(const LockKey&, const Predecessor&)>;
  /// `on_predecessor` is called if a hold turns out to have an evicted predecessor.
  HeldLocks(Store& store, std::vector<Held> held, const Log& log,
            OnPredecessor on_predecessor = {});

  bool needs_renewal() const;
  /// Renews each lease that is too short to stop the command in time. `run` calls it just before it
  /// creates the command's process. Returns false if a hold is lost.
  bool ready_to_start(milliseconds grace);
  /// Records the command's process group in holds without a lease; returns false if a hold is lost.
  bool command_started(pid_t group);
  /// Starts to renew the holds. `run` calls it once the command's process exists, so that dlock
  /// forks with a single thread. `command` is that process, which other clients see; `safe_until`
  /// is as in LeaseRenewer.
  void start_renewing(pid_t command, std::atomic<BootClock::rep>* safe_until = nullptr);
  void renew_now();
  /// The message about the locks when dlock is stopped (^Z).
  std::string stop_text() const;
  std::string loss_text() const;
  /// The client that asked COMMAND to stop, if look() has told of one.
  const std::optional<StopRequest>& stop_request() const { return stop_request_; }
  /// True if the renewer or the server has reported a loss; valid after stop_renewing().
  bool is_lost() const { return loss_ && loss_->final; }
  /// The client that evicted a hold, if known; valid after stop_renewing().
  std::optional<Who> evicted_by() const;

  /// Ends the renewals and keeps their results. `lost`: the renewer or a deadline showed a loss.
  void stop_renewing(bool lost);

  /// `run` calls this instead of release() if `survivors` outlive dlock. It records the first one's
  /// process group, and returns the text that says how long the key stays taken.
  std::string outlive_by(const std::vector<Survivor>& survivors);

  enum class Outcome { released, was_lost, unknown };
  /// Releases the locks; call it after stop_renewing(). Repeats each request until the server
  /// answers, the lease expires or 2 s have passed, and reports everything except full success.
  Outcome release(const ReleaseOptions& how);

  int fd() const override;
  Deadline look_by() const override;
  News look() override;
  void look_no_more() override;
  Deadline safe_until() const override;
  milliseconds grace(milliseconds usual) const override;

 private:
  void lost(const Claim& claim, const std::optional<Who>& evicted_by);
  Outcome release(const Held& held, const ReleaseOptions& how, std::vector<std::string>& troubles);

  Store& store_;
  std::vector<Held> held_;
  const Log& log_;
  const OnPredecessor on_predecessor_;
  std::unique_ptr<LeaseRenewer> renewer_;
  std::unique_ptr<LeaseRenewer> ended_renewer_;  ///< the next holder need not wait for its thread
  std::optional<Loss> loss_;
  std::optional<StopRequest> stop_request_;
};

}  // namespace dlock
