#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "base/process.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/process.hpp"
#include "support/supervised.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

namespace {

/// A shell loop that ends when `file` exists.
std::string until(const std::string& file) {
  return "while [ ! -e " + file + " ]; do sleep 0.01; done";
}

/// Leaves a daemon (double fork, own session) and a member of its own group, and exits with 7. Both
/// print the signals that they get; TERM ends them. They wait in a builtin, as dash loses a signal
/// that arrives during its vfork. The children that they wait for ignore both signals from their
/// fork on.
std::string leaves_two() {
  const auto hears = [](const std::string& who) {
    return "sh -c \"trap '' USR1 TERM; sleep 60 & trap 'echo " + who + " USR1' USR1; trap 'echo " +
           who + " TERM; kill -9 \\$!; exit' TERM; echo; until wait; do :; done\"";
  };
  return "(setsid " + hears("daemon") + " &); " + hears("member") + " & echo $$; exit 7";
}

bool has(const Process& process, const std::string& text) {
  return process.out().find(text) != std::string::npos;
}

/// Waits until the processes of leaves_two() are ready for signals, and the command is a zombie.
bool only_rest_left(const Process& dlock) {
  const auto command = [&] {
    const auto at = dlock.out().find_first_of("123456789");
    return at == std::string::npos ? 0 : std::stoi(dlock.out().substr(at));
  };
  const auto lines = [&] { return count_lines(dlock.out()); };
  const bool left = eventually(
      [&] { return lines() == 3 && command() > 0 && !is_alive(command()); }, milliseconds(30'000));
  if (!left) MESSAGE(dlock.out(), dlock.err());
  return left;
}

/// Waits until the command is a zombie, and the process that it left is a child of dlock.
bool one_is_left(const Process& dlock) {
  return eventually([&] {
    const auto children = children_of(dlock.pid()).value();
    return children.size() == 2 && (!is_alive(children[0]) || !is_alive(children[1]));
  });
}

}  // namespace

TEST_CASE("wait-tree: the end is that of the last descendant, the code the child's own") {
  const TempDir dir;
  const auto script =
      shell("(setsid sh -c '" + until(dir / "go") + "; touch " + (dir / "done") + "' &); exit 3");
  auto dlock = Process(supervised(script, {"wait-tree=1"}));
  REQUIRE(one_is_left(dlock));
  CHECK(dlock.running());
  write_file(dir / "go", "");
  const auto result = dlock.wait();
  CHECK(result.exit_code == 3);
  CHECK(says(result, "exited code=3"));
  CHECK(read_file(dir / "done") == "");
  const auto killed = run(supervised(shell("sleep 0.1 & kill -9 $$"), {"wait-tree=1"}));
  CHECK(killed.signal == SIGKILL);
  CHECK(killed.duration > milliseconds(100));
}

TEST_CASE("wait-tree: a signal reaches all that is left, each time it comes") {
  auto dlock = Process(supervised(shell(leaves_two()), {"wait-tree=1"}));
  REQUIRE(only_rest_left(dlock));
  dlock.signal(SIGUSR1);
  CHECK(eventually([&] { return has(dlock, "daemon USR1") && has(dlock, "member USR1"); }));
  dlock.signal(SIGTERM);
  const auto result = dlock.wait();
  CHECK(result.exit_code == 7);
  CHECK(result.out.find("daemon TERM") != std::string::npos);
  CHECK(result.out.find("member TERM") != std::string::npos);
}

TEST_CASE("wait-tree: dlock sleeps while it waits for what is left") {
  auto dlock = Process(supervised(shell(leaves_two()), {"wait-tree=1"}));
  REQUIRE(only_rest_left(dlock));
  REQUIRE(eventually([&] { return is_in_state('S', dlock.pid()); }));
  // On a busy machine, dlock may do its remaining work late; then it sleeps.
  CHECK(eventually([&] {
    int awake = 0;
    for (int i = 0; i < 100; ++i) {
      if (is_in_state('R', dlock.pid())) ++awake;
      usleep(1000);
    }
    return awake < 30;
  }));
  CHECK(dlock.running());
  dlock.signal(SIGTERM);  // the test cannot reach the daemon
  CHECK(dlock.wait().exit_code == 7);
}

TEST_CASE("wait-tree: a loss and max-hold stop what is left, and the code says so") {
  const TempDir dir;
  const auto script = shell("(trap '' TERM; setsid sleep 60 & echo $!) & wait; exit 5");
  auto dlock = Process(
      supervised(script, {"wait-tree=1", "lease=60000", "grace=100", "lost=" + (dir / "lost")}));
  REQUIRE(one_is_left(dlock));
  write_file(dir / "lost", "");
  const auto lost = dlock.wait();
  CHECK(lost.exit_code == 79);
  CHECK(says(lost, "lost code=5 signal=0 error=0 noticed=1 survivors=0"));
  REQUIRE_FALSE(lost.out.empty());
  CHECK_FALSE(is_alive(std::stoi(lost.out)));
  // On a busy machine, the command may not have ended by then, but not in every try.
  CHECK(in_one_of(5, [&] {
    const auto long_run = run(supervised(script, {"wait-tree=1", "max-hold=2500", "grace=10"}));
    CHECK(long_run.exit_code == 124);
    if (!says(long_run, "max-hold code=5")) return false;
    REQUIRE_FALSE(long_run.out.empty());
    CHECK_FALSE(is_alive(std::stoi(long_run.out)));
    return true;
  }));
}

TEST_CASE("wait-tree: a command that cannot be executed is told at once") {
  CHECK(says(run(supervised({"/nonexistent"}, {"wait-tree=1"})), "not-started"));
}

}  // namespace dlock::test
