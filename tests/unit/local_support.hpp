#pragma once

#include <functional>
#include <string>

#include "local/local_store.hpp"
#include "lock/claim.hpp"

namespace dlock::test {

/// An exclusive claim of a new owner with a ttl of 30 s, held by a process.
Claim claim_on(const std::string& key);

/// Asks without waiting; returns whether the lock was granted.
bool try_lock(LocalStore& store, const Claim& claim);

/// A child process that runs `work`; the destructor kills and reaps it if it still runs.
class Forked {
 public:
  explicit Forked(const std::function<void()>& work);
  ~Forked();
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Its exit status; 128 + N for signal N.
  int wait();

 private:
  pid_t pid_ = -1;
};

/// Sleeps until a signal ends the process.
[[noreturn]] void sleep_for_ever();

}  // namespace dlock::test
