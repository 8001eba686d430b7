#include <doctest/doctest.h>
#include <signal.h>

#include <string>

#include "base/clock.hpp"
#include "cli/attached.hpp"
#include "cli/line.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/one_of_tries.hpp"
#include "support/process.hpp"

namespace dlock::test {
namespace {

/// A script with a lock on `a` and a child in its own session, which reports that it was told to
/// end, and does not end. The script goes on with `then`.
Process with_stubborn_child(const Place& place, const std::string& then, const std::string& first) {
  auto script = attached(place, "-k a -t 6s",
                         "setsid sh -c 'trap \"echo child told\" TERM; echo $$ >child; while :; do "
                         "sleep 0.05; done' &\n"
                         "until [ -s child ]; do sleep 0.01; done; echo ready\n" +
                             then,
                         first);
  REQUIRE(eventually([&] { return holds(script.out(), "ready"); }));
  return script;
}

bool child_lives(const Place& place) {
  return is_alive(std::stoi(read_file(place.dir() / "child")));
}

TEST_CASE(
    "attach: when the lock is lost, the script's children are told, and what stays is killed") {
  on_each_engine([](const Place& place) {
    auto script =
        with_stubborn_child(place, "while :; do sleep 0.05; done", "trap 'echo script told' TERM");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    const auto result = script.wait();
    CHECK(result.signal == SIGKILL);
    CHECK(holds(result.out, "script told\n"));
    CHECK(holds(result.out, "child told\n"));
    CHECK(holds(result.err, "dlock: lost a: "));
    CHECK(holds(result.err, "evicted by "));
    CHECK(eventually([&] { return !child_lives(place); }));
    CHECK(keepers_leave(script.pid()));
  });
}

TEST_CASE("attach: why the lock was lost stays in a log that the script goes on writing") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -t 6s",
                           "exec 2>log\ntrap : TERM\nwhile :; do echo works >&2; sleep 0.05; done");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    CHECK(script.wait().signal == SIGKILL);
    CHECK(holds(read_file(place.dir() / "log"), "dlock: lost a: evicted by "));
    CHECK(holds(read_file(place.dir() / "log"), "SIGKILL follows in "));
    CHECK(keepers_leave(script.pid()));
  });
}

TEST_CASE("attach: a script whose lock was lost waits for no keeper when it releases") {
  on_each_engine([](const Place& place) {
    auto script = with_stubborn_child(
        place, "wait; wait", "trap '\"$D\" release -q -k a --token $T; echo code $?; exit 3' TERM");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    CHECK(script.wait().exit_code == 3);
    CHECK(holds(script.out(), "code 79"));
    CHECK(keepers_leave(script.pid()));
  });
}

bool child_is_gone_before_the_lease_ends() {
  const Place place(Engine::redis);
  auto script = with_stubborn_child(place, "exec sleep 60", ":");
  const auto end = lease_end_after([&] { place.server().stop(); }, place.server(), "a");
  if (!end) return false;
  CHECK(script.wait().signal == SIGTERM);
  CHECK(eventually([&] { return !child_lives(place); }));
  const bool in_time = BootClock::now() < *end;
  place.server().cont();
  CHECK(eventually([&] { return place.is_free("a"); }));
  CHECK(keepers_leave(script.pid()));
  return in_time;
}

TEST_CASE("attach: a child that outlives the script after a loss is killed before the lease ends") {
  CHECK(in_one_of(3, child_is_gone_before_the_lease_ends));
}

TEST_CASE("attach: process 1 of a container is told that the lock waits for its lease") {
  if (run({"unshare", "-pf", "--mount-proc", "true"}).exit_code != 0) {
    MESSAGE("skipped: this user may make no pid namespace");
    return;
  }
  on_each_engine([](const Place& place) {
    const auto result = place.shell(
        "exec unshare -pf --mount-proc sh -c '\"$D\" acquire -k a --attach $$ >/dev/null; exit "
        "$?'");
    check_says(result, 0, place.is_local() ? "" : "process 1 ends");
    CHECK(count_lines(result.err) == (place.is_local() ? 0 : 1));
  });
}

}  // namespace
}  // namespace dlock::test
