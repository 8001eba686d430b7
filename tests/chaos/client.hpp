#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "support/chance.hpp"
#include "support/fleet.hpp"
#include "support/history.hpp"

namespace dlock::test {

/// No client asks for a longer lease.
constexpr milliseconds longest_ttl{3000};

/// Somebody who wants one lock again and again, by `run` and by `acquire` to `release`, and is
/// killed now and then. One thread.
class Client {
 public:
  /// `flags` stand in every request: the limit.
  Client(const Scene& scene, std::uint64_t seed, std::string key, std::vector<std::string> flags);

  void work_until(const std::atomic<bool>& end);

  const std::string& key() const { return key_; }
  /// The grants of `acquire`; those of `run` are in the log of beats.
  const std::vector<Held>& held() const { return held_; }
  /// How often what came out.
  const std::map<std::string, int>& outcomes() const { return outcomes_; }
  /// What must not have come out.
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
  /// Kills it once in so many times, and when there is no more time.
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

/// Where the commands on `key` write their beats.
std::string beats_of(const Scene& scene, const std::string& key);

}  // namespace dlock::test
