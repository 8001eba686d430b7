#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/process.hpp"
#include "supervise/process_tree.hpp"
#include "support/cgroup.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/privileges.hpp"
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

std::size_t folders_in(const std::string& folder) {
  const auto found = std::filesystem::directory_iterator(folder);
  return static_cast<std::size_t>(std::count_if(
      begin(found), end(found), [](const auto& each) { return each.is_directory(); }));
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
  CHECK(tree.signal(SIGTERM).empty());
  CHECK(tree.has_descendants());
  CHECK(script.wait().signal == SIGTERM);
  CHECK(is_alive(found[1].pid));
  CHECK(tree.signal(SIGKILL).empty());
  tree.await_end(later(BootClock::now(), stretched(milliseconds(5000))));
  CHECK_FALSE(is_alive(found[1].pid));
}

TEST_CASE("a signal for a script does not reach another process that has its pid now") {
  auto stranger = Process({"sleep", "60"});
  ProcessId script = process_now(stranger.pid());
  --script.started;
  CHECK(ProcessTree(script).signal(SIGKILL).empty());
  stranger.signal(SIGTERM);
  CHECK(stranger.wait().signal == SIGTERM);
}

TEST_CASE("what became root is killed by cgroup where that is delegated") {
  const std::string missing = not_root_here();
  const TestCgroup cgroup("");
  if (!missing.empty() || cgroup.path().empty()) {
    MESSAGE("skipped: ", missing.empty() ? "no cgroup v2 that may be written" : missing);
    return;
  }
  if (access((cgroup.path() + "/cgroup.kill").c_str(), F_OK) != 0) {
    MESSAGE("skipped: this kernel has no cgroup.kill");
    return;
  }
  const OrdinaryUser user;
  auto words = supervised(shell("setsid " + user.sleep_as_root() + " & echo $!; wait"),
                          {"max-hold=1500", "grace=0"});
  words.front() = user.own_copy(words.front());
  // A busy machine may need longer to start the command.
  Result result;
  for (int tries = 0; tries < 5 && result.out.empty(); ++tries) {
    result = run(user.run_as(words, cgroup.path()));
    CHECK(result.exit_code == 124);
    CHECK(says(result, "survivors=0"));
    CHECK(folders_in(cgroup.path()) == 0);
  }
  REQUIRE_FALSE(result.out.empty());
  CHECK_FALSE(is_alive(std::stoi(result.out)));
  CHECK(result.duration < stretched(milliseconds(6000)));
}

TEST_CASE("the folder of a cgroup is found where it is mounted") {
  const std::string v1 = "31 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
  const std::string v2 = "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
  CHECK(own_cgroup_folder("1:cpu:/x\n0::/a/b\n", v1 + v2) == "/sys/fs/cgroup/a/b");
  CHECK(own_cgroup_folder("0::/\n", v2) == "/sys/fs/cgroup/");
  const std::string part = "41 31 0:38 /a /mnt rw - cgroup2 cgroup2 rw\n";
  CHECK(own_cgroup_folder("0::/a/b\n", part) == "/mnt/b");
  CHECK(own_cgroup_folder("0::/ab\n", part) == "");
  CHECK(own_cgroup_folder("0::/../b\n", v2) == "");
  CHECK(own_cgroup_folder("1:cpu:/x\n", v2) == "");
  CHECK(own_cgroup_folder("0::/a\n", v1) == "");
}

}  // namespace dlock::test
