#pragma once

#include <functional>
#include <string>

#include "local/local_store.hpp"
#include "lock/claim.hpp"

namespace dlock::test {

/// A claim of a new owner, ttl 30 s, exclusive, held by process.
Claim claim_on(const std::string& key);

/// Waits in the queue as the acquiring loop does until it has the lock, and answers how often it
/// slept.
int wait_for_lock(LocalStore& store, const Claim& claim);

/// Asks without waiting; whether it was had.
bool try_lock(LocalStore& store, const Claim& claim);
Refusal refused(LocalStore& store, const Claim& claim);

/// Whether a hand-over of that moment may have lapsed by now, as one does that is not confirmed for
/// two seconds: where the machine was so late, a test has to be tried again.
bool may_have_lapsed(Deadline handed_over);

/// A child process running `work`; killed and reaped at the end if it still runs.
class Forked {
 public:
  explicit Forked(const std::function<void()>& work);
  ~Forked();
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Its exit status, 128 + N for signal N.
  int wait();

 private:
  pid_t pid_ = -1;
};

/// Sleeps until a signal ends the process.
[[noreturn]] void sleep_for_ever();

}  // namespace dlock::test
