#include "support/asleep.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "support/eventually.hpp"
#include "support/process.hpp"

namespace dlock::test {

long voluntary_switches(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  const std::string name = "voluntary_ctxt_switches:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stol(line.substr(name.size()));
  }
  return -1;
}

bool fall_asleep(const std::vector<pid_t>& pids, milliseconds quiet) {
  const auto switches = [&] {
    std::vector<long> all;
    for (const pid_t pid : pids) all.push_back(voluntary_switches(pid));
    return all;
  };
  return eventually([&] {
    const std::vector<long> before = switches();
    std::this_thread::sleep_for(quiet);
    const bool asleep = std::all_of(pids.begin(), pids.end(), [](pid_t pid) {
      return !is_alive(pid) || is_in_state('S', pid);
    });
    return asleep && switches() == before;
  });
}

}  // namespace dlock::test
