#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "support/chance.hpp"
#include "support/fleet.hpp"
#include "support/history.hpp"

namespace dlock::test {

/// The longest lease that a client asks for.
constexpr milliseconds longest_ttl{3000};

/// A client that acquires one lock again and again, by `run` and by `acquire` and `release`, and is
/// killed now and then. It runs in one thread.
class Client {
 public:
  /// `flags` are added to every request, for the limit.
  Client(const Scene& scene, std::uint64_t seed, std::string key, std::vector<std::string> flags);

  void work_until(const std::atomic<bool>& end);

  const std::string& key() const { return key_; }
  /// The grants of `acquire`; those of `run` are in the log of beats.
  const std::vector<Held>& held() const { return held_; }
  /// How often each outcome occurred.
  const std::map<std::string, int>& outcomes() const { return outcomes_; }
  /// The outcomes that must not occur.
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  struct Ended {
    Result result;
    bool killed = false;
    bool is_good() const { return !killed && result.exit_code == 0; }
  };

  void run();
  void acquire_and_release();
  std::vector<std::string> request(const std::string& command, milliseconds ttl);
  /// Kills the process once in so many times, and when the time is over.
  Ended perform(const std::vector<std::string>& arguments, int kill_once_in);

  const Scene& scene_;
  Chance chance_;
  std::string key_;
  std::vector<std::string> flags_;
  const std::atomic<bool>* end_ = nullptr;
  std::vector<Held> held_;
  std::map<std::string, int> outcomes_;
  std::vector<std::string> troubles_;
};

/// The file in which the commands on `key` write their beats.
std::string beats_of(const Scene& scene, const std::string& key);

}  // namespace dlock::test
