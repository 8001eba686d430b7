#include <doctest/doctest.h>
#include <signal.h>

#include "cli/line.hpp"
#include "cli/place.hpp"
#include "support/cgroup.hpp"
#include "support/files.hpp"
#include "support/privileges.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

/// Leaves behind a process in its own session, which writes "in" and stays until the file `go`
/// exists; the command itself exits with 3.
const char* const leaves_a_daemon =
    "(setsid sh -c 'echo in; while [ ! -e go ]; do sleep 0.01; done; echo over' &); exit 3";

/// The same with a process that stays until TERM; the command first writes its own pid.
const char* const leaves_one_to_be_asked =
    "echo $$; (setsid sh -c 'trap \"\" TERM; sleep 60 & trap \"kill -9 $!; echo asked; exit\" "
    "TERM; echo in;"
    "until wait; do :; done' &); exit 3";

Process start_in(const Place& place, std::vector<std::string> words) {
  return place.start(words, {.cwd = place.dir().path()});
}

TEST_CASE("tree: --wait-tree holds until the last descendant has gone, with the command's code") {
  on_each_engine([](const Place& place) {
    auto process = patient_start(
        [&] {
          return start_in(place, {"run", "-k", "a", "--wait-tree", "-t",
                                  place.is_local() ? "1s" : "12s", "-c", leaves_a_daemon});
        },
        says_in, "the daemon did not begin");
    for (int i = 0; i < 2 && !place.is_local(); ++i) await_renewal(place.server(), "a");
    CHECK(place.dlock({"run", "-k", "a", "-w", "1200ms", "--", "true"}).exit_code == 75);
    CHECK(process.running());
    write_file(place.dir() / "go", "");
    const auto result = process.wait();
    CHECK(result.exit_code == 3);
    CHECK(result.out == "in\nover\n");
    CHECK(result.err == "");
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("tree: a keeper of acquire --attach is not waited for, nor stopped with the command") {
  on_each_engine([](const Place& place) {
    auto script = place.start_shell(
        "\"$D\" run -k outer --wait-tree -- \"$D\" acquire -q -k inner --attach $$ && echo on;"
        "\"$D\" run -k outer --max-hold 200ms --grace 100ms -- sleep 60; echo $?; exec sleep 60");
    REQUIRE(eventually([&] { return count_lines(script.out()) == 2; }));
    CHECK(script.out() == "on\n124\n");
    CHECK(!place.is_free("inner"));
    script.kill_hard();
    CHECK(eventually([&] { return place.is_free("inner"); }));
  });
}

TEST_CASE("tree: without --wait-tree the lock follows the command itself") {
  on_each_engine([](const Place& place) {
    auto process = start_in(place, {"run", "-k", "a", "-c", leaves_a_daemon});
    CHECK(process.wait().exit_code == 3);
    CHECK(place.is_free("a"));
    REQUIRE(eventually([&] { return process.out() == "in\n"; }));
    write_file(place.dir() / "go", "");
    CHECK(eventually([&] { return process.out() == "in\nover\n"; }));
  });
}

TEST_CASE("tree: what cannot be killed is named, and the lock is left to lapse") {
  const TestCgroup freezer("freezer");
  if (skip_if(freezer.path().empty(), "no cgroup v1 freezer that may be written")) return;
  const std::string freezes_itself = "echo $$; echo $$ >" + freezer.path() +
                                     "/cgroup.procs; echo FROZEN >" + freezer.path() +
                                     "/freezer.state; exec sleep 60";
  const Place places[] = {Place(Engine::redis), Place(Engine::local)};
  std::vector<Process> held;
  for (const Place& place : places) {
    held.push_back(start_in(place, {"run", "-k", "a", "-t", "30s", "--max-hold", "5s", "--grace",
                                    "0", "--status-fd", "2", "-c", freezes_itself}));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    CAPTURE(places[i].url());
    const auto result = held[i].wait();
    CHECK(!places[i].is_free("a"));
    CHECK(result.exit_code == 124);
    const std::string pid = result.out.substr(0, result.out.find('\n'));
    const std::string end = places[i].is_local() ? "when that does" : "with its lease";
    CHECK(holds(result.err, "could not kill pid " + pid +
                                " (sh), in uninterruptible sleep or frozen: the lock is not "
                                "released, and ends " +
                                end + "\n"));
    CHECK(holds(result.err, R"("outcome":"max-hold","exit_code":124,"child_exit":null)"));
  }
  freezer.write("freezer.state", "THAWED");
  CHECK(eventually([&] { return places[1].is_free("a"); }));
}

TEST_CASE("tree: on local: what became root and left the group keeps the lock until it ends") {
  if (skip_if(!not_root_here().empty(), not_root_here())) return;
  const OrdinaryUser user;
  const std::string dlock = user.own_copy(dlock_path());
  const ProcessOptions options{.env = {{"HOME", user.dir().path()}}};
  const auto run_dlock = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {dlock, "run", "--server", "local:" + user.dir().path(), "-k", "a"});
    return run(user.run_as(more), clean(options));
  };
  Result result;
  // On a busy machine, the process may be killed before it has become root, but not in every try.
  in_one_of(3, [&] {
    result = run_dlock({"--max-hold", "4s", "--grace", "0", "-c",
                        "setsid " + user.sleep_as_root() + " & echo $!; wait"});
    return holds(result.err, "could not kill pid ");
  });
  REQUIRE(result.exit_code == 124);
  const std::string pid = result.out.substr(0, result.out.find('\n'));
  CHECK(holds(result.err, "could not kill pid " + pid +
                              " (sleep), owned by root: the lock is not "
                              "released, and ends when that does\n"));
  CHECK(run_dlock({"-n", "--", "true"}).exit_code == 75);
  REQUIRE(is_alive(std::stoi(pid)));
  kill(std::stoi(pid), SIGKILL);
  CHECK(run_dlock({"-w", "10", "--", "true"}).exit_code == 0);
}

}  // namespace
}  // namespace dlock::test
