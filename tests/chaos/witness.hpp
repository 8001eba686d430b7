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

/// Another client that acquires a lock again and again, in this process, to count the exchanges
/// with the servers that its grants take. It has a thread of its own.
class Witness {
 public:
  Witness(const Fleet& fleet, std::uint64_t seed, std::string key);
  ~Witness() { stop(); }

  void stop();
  /// The grants; valid after stop().
  const std::vector<Held>& held() const { return held_; }
  /// The number of grants for each number of exchanges.
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
