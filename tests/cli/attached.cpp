#include "cli/attached.hpp"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/eventually.hpp"
#include "support/growth.hpp"
#include "support/patient_start.hpp"

namespace dlock::test {

std::vector<pid_t> keepers_of(pid_t pid) {
  const std::string mark = std::string("\0--attach\0", 10) + std::to_string(pid) + '\0';
  std::vector<pid_t> keepers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::stringstream line;
    line << file.rdbuf();
    const bool is_dlock = line.str().starts_with(dlock_path() + '\0');
    const auto keeper = static_cast<pid_t>(std::stol(name));
    if (is_dlock && line.str().find(mark) != std::string::npos && is_alive(keeper)) {
      keepers.push_back(keeper);
    }
  }
  return keepers;
}

bool keepers_leave(pid_t pid) {
  return eventually([&] { return keepers_of(pid).empty(); });
}

bool is_renewed_twice(const Place& place, const std::string& key) {
  return grows_twice([&]() -> std::optional<long long> {
    const auto holders = place.state(key)["holders"];
    if (holders.empty()) return std::nullopt;
    return holders[0]["lease_left_ms"].get<long long>();
  });
}

Process attached(const Place& place, const std::string& options, const std::string& then,
                 const std::string& first) {
  const std::string script = first + "\nT=$(\"$D\" acquire " + options +
                             " --attach $$) || exit\nexport T\necho in\n" + then;
  return patient_start([&] { return place.start_shell(script); },
                       [](const Process& shell) { return shell.out().starts_with("in\n"); },
                       "not acquired");
}

bool end_script(Process& script) {
  script.signal(SIGKILL);
  script.wait();
  return keepers_leave(script.pid());
}

}  // namespace dlock::test
