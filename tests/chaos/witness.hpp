#pragma once

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/wait.hpp"
#include "support/chance.hpp"
#include "support/fleet.hpp"
#include "support/history.hpp"

namespace dlock::test {

/// Somebody more who wants a lock again and again, in this process: that shows how many exchanges
/// with the servers its grants take. A thread of its own.
class Witness {
 public:
  Witness(const Fleet& fleet, std::uint64_t seed, std::string key);
  ~Witness() { stop(); }

  void stop();
  /// Once stopped.
  const std::vector<Held>& held() const { return held_; }
  /// How many grants took how many exchanges.
  const std::map<std::size_t, int>& exchanges() const { return exchanges_; }

 private:
  void work();
  void take_it_once();

  std::vector<Address> servers_;
  Chance chance_;
  std::string key_;
  std::vector<Held> held_;
  std::map<std::size_t, int> exchanges_;
  Event end_;
  std::thread thread_;
};

}  // namespace dlock::test
