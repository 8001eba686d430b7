#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/process.hpp"
#include "base/process_identity.hpp"
#include "supervise/process_tree.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"
#include "support/stretched.hpp"
#include "support/supervised.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

namespace {

std::vector<pid_t> running(const std::string& program) {
  auto all = numbers_in("/proc");
  std::erase_if(all, [&](pid_t pid) { return command_name(pid) != program || !is_alive(pid); });
  return all;
}

}  // namespace

TEST_CASE("a family that forks into new sessions faster than it can be listed is ended") {
  const TempDir dir;
  const std::string program = "hop" + std::to_string(getpid());  // unlike that of another test
  std::filesystem::copy_file(DLOCK_HOPPER, dir / program);
  const auto result = run(supervised({dir / program, "8", "25"}, {"max-hold=300", "grace=0"}));
  CHECK(result.exit_code == 124);
  CHECK(says(result, "max-hold code=-1 signal=9 error=0 noticed=0 survivors=0"));
  CHECK(running(program).empty());
}

TEST_CASE("descendants are found below any process, the visitor before their children") {
  auto shell_process = Process(shell("setsid sh -c 'sleep 60 & wait' & wait"));
  const ProcessTree below(shell_process.pid(), {});
  std::vector<Descendant> found;
  std::vector<pid_t> visited;
  REQUIRE(eventually([&] {
    visited.clear();
    found = below.all([&](const Descendant& each) { visited.push_back(each.pid); });
    return found.size() == 2 && command_name(found[1].pid) == "sleep";
  }));
  CHECK(found[0].parent == shell_process.pid());
  CHECK(found[1].parent == found[0].pid);
  CHECK(visited == std::vector<pid_t>{found[0].pid, found[1].pid});
  CHECK(ProcessTree(shell_process.pid(), {found[0].pid}).all().empty());
}

TEST_CASE("what got a signal with a script gets the next one too, after the script has ended") {
  auto script = Process(shell("(trap '' TERM; exec sleep 60) & wait"));
  ProcessTree tree(process_now(script.pid()));
  std::vector<Descendant> found;
  REQUIRE(eventually([&] {
    found = tree.all();
    return found.size() == 2 && command_name(found[1].pid) == "sleep";
  }));
  tree.signal(SIGTERM);
  CHECK(tree.has_descendants());
  CHECK(script.wait().signal == SIGTERM);
  CHECK(is_alive(found[1].pid));
  tree.signal(SIGKILL);
  tree.await_end(later(BootClock::now(), stretched(milliseconds(5000))));
  CHECK_FALSE(is_alive(found[1].pid));
}

TEST_CASE("a signal for a script does not reach another process that has its pid now") {
  auto stranger = Process({"sleep", "60"});
  ProcessId script = process_now(stranger.pid());
  --script.started;
  ProcessTree(script).signal(SIGKILL);
  stranger.signal(SIGTERM);
  CHECK(stranger.wait().signal == SIGTERM);
}

}  // namespace dlock::test
