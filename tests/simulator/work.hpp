#pragma once

#include <memory>
#include <string>

#include "lock/lease_renewer.hpp"
#include "simulator/checker.hpp"
#include "simulator/process.hpp"

namespace dlock::sim {

/// What the lock is held for, and what stops it in time, as the supervisor of a command does: on
/// its own, whatever the renewals are busy with.
class Work final : public LeaseListener, public std::enable_shared_from_this<Work> {
 public:
  /// `stop`: an event of `process`, raised when the work has ended.
  Work(Process& process, Checker& checker, std::size_t quorum_hold, int stop, milliseconds grace);

  void promised(Deadline safe_until, bool confirmed) override;
  void renewed(const LockKey& key, const std::optional<QuorumMargin>& margin) override;
  void failed(const Loss& loss) override;
  /// How many have succeeded one after the other since nothing goes wrong any more.
  int renewals_without_fault() const { return renewals_; }
  /// By itself.
  void done();
  void end();

 private:
  void look_at_clock();
  void stopped(const std::string& why);

  Process& process_;
  Checker& checker_;
  std::size_t tenure_;
  int stop_;
  milliseconds grace_;
  Deadline safe_until_{};
  bool over_ = false;
  int renewals_ = 0;
};

}  // namespace dlock::sim
