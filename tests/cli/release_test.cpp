#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include "cli/place.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

TEST_CASE("release: --force evicts the holders of all keys that match a pattern, and lists them") {
  on_each_engine([](const Place& place) {
    place.acquired("build-1", {"--label", "one"});
    place.acquired("build-2", {"--label", "two"});
    place.acquired("other", {"--label", "three"});
    const auto evicted = place.dlock({"release", "--force", "build-*", "build-1"});
    CHECK(evicted.exit_code == 0);
    CHECK(count_lines(evicted.err) == 2);
    CHECK(holds(evicted.err, "[one]"));
    CHECK(holds(evicted.err, "[two]"));
    CHECK(place.is_free("build-1"));
    CHECK(place.is_free("build-2"));
    CHECK(!place.is_free("other"));
  });
}

/// Whether a process has a waiter's FIFO open.
bool reaches_a_waiter(pid_t pid) {
  std::error_code gone;
  const std::string fds = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& each : std::filesystem::directory_iterator(fds, gone)) {
    if (holds(std::filesystem::read_symlink(each, gone).string(), "/.wait-")) return true;
  }
  return false;
}

TEST_CASE("release: a waiter that dies just before it is told of the release does not end that") {
  const Place place(Engine::local);
  // Without permission to trace, the waiter dies at any moment.
  const auto slow = place
                        .shell(R"(
      slow='strace -D -qq -o /dev/null -e trace=write -e inject=write:delay_enter=1000000'
      $slow true 2>/dev/null && echo "$slow")")
                        .out;
  const std::string token = place.acquired("a");
  auto waiter = place.start({"run", "-q", "-k", "a", "--", "true"});
  REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
  auto release = place.start_shell("exec " + slow.substr(0, slow.find('\n')) +
                                   R"( "$D" release -k a --token )" + token);
  CHECK(eventually([&] { return reaches_a_waiter(release.pid()) || !release.running(); }));
  waiter.signal(SIGKILL);
  CHECK(release.wait().exit_code == 0);
  CHECK(place.is_free("a"));
}

TEST_CASE("release: of several keys all are released, though nobody reads the list of them") {
  on_each_engine([](const Place& place) {
    const auto result = place.shell(R"(
        T=$("$D" acquire -k a -k b -t 30s)
        mkfifo p; exec 3<>p 4>p 3<&-
        "$D" release --json a b --token "$T" >&4 2>err
        echo $?)");
    CHECK(result.out == "71\n");
    CHECK(place.is_free("a"));
    CHECK(place.is_free("b"));
  });
}

TEST_CASE("release: a key that is named twice counts once") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a");
    CHECK(place.dlock({"release", "-k", "a", "--token", token, "a", "a"}).exit_code == 0);
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("release: --force says that no lock matches a pattern") {
  on_each_engine([](const Place& place) {
    place.acquired("other");
    const auto none = place.dlock({"release", "--force", "build-*"});
    CHECK(none.exit_code == 0);
    CHECK(none.err == "dlock: no lock matches build-*\n");
    CHECK(!place.is_free("other"));
  });
}

TEST_CASE(
    "release: after an acquire that failed, a step that always runs succeeds with a warning") {
  on_each_engine([](const Place& place) {
    const auto holder = place.acquired("a");
    const auto step = place.shell(
        R"(T=$("$D" acquire -q -n -k a -t 1m); echo "acquire $?"
           "$D" release -k a --token "$T"; echo "release $?"
           DLOCK_TOKEN= "$D" release -k a; echo "release $?")");
    CHECK(step.out == "acquire 75\nrelease 0\nrelease 0\n");
    CHECK(count_lines(step.err) == 2);
    CHECK(holds(step.err, "dlock: a: the token is empty, so nothing was released"));
    CHECK(!place.is_free("a"));
    CHECK(place.dlock({"release", "-k", "a", "--token", holder}).exit_code == 0);
  });
}

TEST_CASE("release: --force --reason tells the holder who evicted it and why") {
  on_each_engine([](const Place& place) {
    auto victim = place.begun_shell(
        R"("$D" run -k a -t 9s --status-fd 3 -- sh -c 'echo in; exec sleep 60' 3>status)");
    const auto token = place.acquired("b");
    const auto evicted = place.dlock({"release", "--force", "--reason", "stuck deploy", "a", "b"});
    CHECK(evicted.exit_code == 0);
    CHECK(count_lines(evicted.err) == 2);
    CHECK(holds(evicted.err, ": stuck deploy\n"));

    const auto lost = victim.wait();
    check_says(lost, 79, "evicted by ");
    CHECK(holds(lost.err, ": stuck deploy; COMMAND was stopped"));
    const auto status = nlohmann::ordered_json::parse(read_file(place.dir() / "status"));
    CHECK(status["evicted_by"]["reason"] == "stuck deploy");
    CHECK(names(status["evicted_by"]) == std::vector<std::string>{"host", "pid", "user", "reason"});

    for (const char* command : {"renew", "release"}) {
      const auto late = place.dlock({command, "b", "--token", token, "--json"});
      check_says(late, 79, "b is not held by this token: evicted by ");
      CHECK(holds(late.err, ": stuck deploy\n"));
      CHECK(nlohmann::ordered_json::parse(late.out)["evicted_by"]["reason"] == "stuck deploy");
    }
  });
}

}  // namespace
}  // namespace dlock::test
