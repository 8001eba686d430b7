#pragma once

#include <memory>
#include <string>

#include "lock/lease_renewer.hpp"
#include "simulator/checker.hpp"
#include "simulator/process.hpp"

namespace dlock::sim {

/// The work under a lock. Like the supervisor of a command it stops in time by itself, whatever the
/// renewals are busy with.
class Work final : public std::enable_shared_from_this<Work> {
 public:
  /// `stop`: an event of `process`, raised when the work has ended.
  Work(Process& process, Checker& checker, std::size_t quorum_hold, int stop, milliseconds grace);

  /// All holds are ours until `safe_until`, whatever happens.
  void promised(Deadline safe_until);
  void told(const RenewalOutcome& renewal);
  /// How many renewals have succeeded in a row since the healing.
  int renewals_without_fault() const { return renewals_; }
  /// The work ends by itself.
  void done();
  void end();

 private:
  void look_at_clock();
  void renewed();
  void failed(const Loss& loss);
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
