#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lock/lease_renewer.hpp"
#include "output/log.hpp"
#include "supervise/supervise.hpp"

namespace dlock {

/// The locks `run` holds while its command runs: keeps them, tells the supervisor when they are
/// lost, and gives them back.
class HeldLocks {
 public:
  HeldLocks(Store& store, std::vector<Held> held, const Log& log);
  ~HeldLocks();

  bool needs_renewal() const;
  /// Just before the command's process is made: false if the leases no longer last for it to be
  /// stopped in time, or a hold has gone.
  bool ready_to_start(milliseconds grace);
  /// Only where nothing needs renewal: false if a hold has gone.
  bool command_started(pid_t group);
  /// Begins to renew, where leases need it, and to listen where they do not. Called once the
  /// command's process exists, so that the fork happens in a process of one thread.
  /// `command` is that process, which others see; `safe_until` as in LeaseRenewer.
  void keep(pid_t command, std::atomic<BootClock::rep>* safe_until = nullptr);
  /// Until then all holds are ours as things stand; before keep().
  Deadline granted_until() const;
  void renew_now();
  /// What becomes of the locks while dlock is stopped (^Z).
  std::string stop_text() const;
  /// Null where nothing can be lost.
  const StopSource* stop_source() const;
  std::string loss_text() const;
  /// The renewer or the server has reported the loss of a hold; after stop_keeping().
  bool is_lost() const { return loss_ && loss_->final; }
  /// Who took a hold away, where that is known; after stop_keeping().
  std::optional<Who> evicted_by() const;

  /// `lost`: a loss was noticed, by the renewer or by the clock.
  void stop_keeping(bool lost);

  /// In place of give_back(), when these live on and dlock ends: tells until when the key stays
  /// taken.
  std::string outlive_by(const std::vector<Survivor>& survivors);

  enum class GivenBack { all, was_lost, unknown };
  /// After stop_keeping(). Repeats until answered, at most until the leases end or 2 s; tells what
  /// came of it unless all went well.
  GivenBack give_back(ReleaseMode mode);

 private:
  class LeaseMonitor;
  class Listening;

  /// Asks for all holds; nothing if one could not be asked for.
  std::optional<bool> is_evicted();
  void lost(const Claim& claim, const std::optional<Who>& evicted_by);

  GivenBack give_back(const Held& held, ReleaseMode mode, std::vector<std::string>& troubles);

  Store& store_;
  std::vector<Held> held_;
  const Log& log_;
  std::unique_ptr<LeaseRenewer> renewer_;
  std::unique_ptr<StopSource> source_;
  std::optional<Loss> loss_;
};

}  // namespace dlock
