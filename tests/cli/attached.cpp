#include "cli/attached.hpp"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "support/eventually.hpp"

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

Process attached(const Place& place, const std::string& options, const std::string& then,
                 const std::string& first) {
  Process script = place.start_shell(first + "\nT=$(\"$D\" acquire " + options +
                                     " --attach $$) || exit\nexport T\necho in\n" + then);
  const bool in = eventually([&] { return script.out().starts_with("in\n"); });
  if (!in) throw Error(ErrorKind::bug, "not acquired: " + script.err());
  return script;
}

bool end_script(Process& script) {
  script.signal(SIGKILL);
  script.wait();
  return keepers_leave(script.pid());
}

}  // namespace dlock::test
