// release --stop: a holder that is asked to stop, and a holder that nobody can ask.

#include <doctest/doctest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "base/process.hpp"
#include "cli/live_support.hpp"
#include "cli/place.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

/// Writes the script `job`: it adds a line to `asked` for each `signal`, and runs until a test
/// creates `end`. dash loses a signal that arrives while it forks, so the script waits in a
/// builtin.
void write_job(const Place& place, const std::string& signal) {
  write_file(place.dir() / "job",
             "trap '' " + signal + "\n(until [ -e end ]; do sleep 0.05; done) &\n" +
                 "trap 'echo asked >>asked' " + signal +
                 "\necho in\nwhile kill -0 $! 2>/dev/null; do wait $!; done\nexit 3\n");
}

void end_job(const Place& place) { write_file(place.dir() / "end", ""); }

Result ask_to_stop(const Place& place, const Words& more) {
  Words words{"release", "--stop"};
  words.insert(words.end(), more.begin(), more.end());
  return place.dlock(words);
}

/// A `run` on a of a command that ignores TERM, writes "in", and ends with 0 once a test creates
/// `end`.
Process deaf_job(const Place& place) {
  return place.begun_shell(
      R"(exec "$D" run -k a -t 9s --grace 0.1 -- \
         sh -c 'trap "" TERM; echo in; until [ -e end ]; do sleep 0.05; done')");
}

}  // namespace

TEST_CASE("stop: COMMAND gets --signal once, and the lock stays held until it has ended") {
  on_each_engine([](const Place& place) {
    write_job(place, "USR1");
    auto job = place.begun_shell(
        R"(exec "$D" run -k a -t 9s --signal USR1 --status-fd 3 \
           --hook 'echo "$DLOCK_EVENT $DLOCK_KEY: $DLOCK_REASON" >>events' -- sh job 3>status)");
    const auto asked = ask_to_stop(place, {"--reason", "too old", "a"});
    check_message(asked, 0, "asked ");
    CHECK(holds(asked.err, " pid " + std::to_string(job.pid()) + " "));
    CHECK(holds(asked.err, " to stop and to release a, fence "));
    REQUIRE(wait_for_file(place.dir() / "asked"));
    CHECK(ask_to_stop(place, {"--reason", "again", "a"}).exit_code == 0);
    // Each renewal reports the request again.
    if (!place.is_local()) CHECK(is_renewed_twice(place, "a"));
    const auto held = place.state("a")["holders"];
    REQUIRE(held.size() == 1);
    CHECK(names(held[0]["stop_asked_by"]) == Words{"host", "pid", "user", "reason"});
    CHECK(held[0]["stop_asked_by"]["reason"] == "too old");
    const auto shown = place.dlock({"inspect", "a"}).out;
    CHECK(holds(shown, "asked to stop by "));
    CHECK(place.dlock({"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);

    end_job(place);
    const auto ended = job.wait();
    CHECK(ended.exit_code == 3);
    CHECK(count_lines(read_file(place.dir() / "asked")) == 1);
    CHECK(holds(ended.err, "dlock: a: asked to stop by "));
    CHECK(holds(ended.err,
                ": too old; sent COMMAND signal USR1, and hold the lock until it has ended\n"));
    const auto status = Json::parse(read_file(place.dir() / "status"));
    CHECK(status["outcome"] == "exited");
    CHECK(status["stop_asked_by"]["reason"] == "too old");
    CHECK(holds(status["reason"], "asked to stop by "));
    const auto events = lines_of(read_file(place.dir() / "events"));
    REQUIRE(events.size() == 3);
    CHECK(events[1].starts_with("stop-asked a: asked to stop by "));
    CHECK(events[1].ends_with(": too old"));
    CHECK(events[2].starts_with("released a: "));
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("stop: COMMAND that ignores the signal keeps the lock, and nobody kills it") {
  on_each_engine([](const Place& place) {
    auto job = deaf_job(place);
    const auto in_vain = ask_to_stop(place, {"-w", "0.5", "a"});
    check_says(in_vain, 75, "dlock: a is still held by ");
    CHECK(holds(in_vain.err, " after 500ms\n"));
    CHECK(eventually([&] { return holds(job.err(), "; sent COMMAND signal TERM, "); }));
    if (!place.is_local()) CHECK(is_renewed_twice(place, "a"));

    auto patient = place.start({"release", "--stop", "-w", "1m", "a"});
    CHECK(eventually([&] { return holds(patient.err(), "asked "); }));
    CHECK(patient.running());
    CHECK(job.running());
    CHECK(!place.is_free("a"));
    end_job(place);
    CHECK(patient.wait().exit_code == 0);
    CHECK(job.wait().exit_code == 0);
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("stop: -w counts only the holders that were asked, and not those that follow") {
  on_each_engine([](const Place& place) {
    const auto job = deaf_job(place);
    const auto next = place.start({"run", "-k", "a", "--", "sleep", "60"});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    auto stop = place.start({"release", "--stop", "-w", "1m", "a"});
    CHECK(eventually([&] { return holds(stop.err(), "asked "); }));
    end_job(place);
    CHECK(stop.wait().exit_code == 0);
    CHECK(next.running());
    CHECK(!place.is_free("a"));
  });
}

TEST_CASE("stop: a script of acquire --attach is signalled, and keeps the lock until it ends") {
  on_each_engine([](const Place& place) {
    write_job(place, "TERM");
    auto script = attached(place, "-k a -t 9s", "exec sh job");
    check_says(ask_to_stop(place, {"--reason", "reboot", "a"}), 0, "asked ");
    REQUIRE(wait_for_file(place.dir() / "asked"));
    if (!place.is_local()) CHECK(is_renewed_twice(place, "a"));
    CHECK(!place.is_free("a"));
    end_job(place);
    const auto ended = script.wait();
    CHECK(ended.exit_code == 3);
    CHECK(count_lines(read_file(place.dir() / "asked")) == 1);
    CHECK(holds(ended.err, "dlock: a: asked to stop by "));
    CHECK(holds(ended.err, ": reboot; sent signal TERM to process "));
    CHECK(!holds(ended.err, "SIGKILL"));
    CHECK(keepers_leave(script.pid()));
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("stop: a holder that nobody can ask is named, and the exit code is 75") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a", {"--label", "step 1"});
    const auto asked = ask_to_stop(place, {"--reason", "reboot", "a"});
    check_message(asked, 75, "cannot ask ");
    CHECK(holds(asked.err, " [step 1] to stop and to release a, fence "));
    CHECK(!place.is_free("a"));
    const auto listed = Json::parse(ask_to_stop(place, {"--json", "a"}).out);
    CHECK(names(listed) == Words{"key", "asked", "cannot_be_asked"});
    CHECK(listed["asked"].empty());
    REQUIRE(listed["cannot_be_asked"].size() == 1);
    CHECK(listed["cannot_be_asked"][0]["via"] == "acquire");

    // The script learns of it when it renews.
    const auto renewed = place.dlock({"renew", "a", "--token", token, "--json"});
    check_says(renewed, 0, "dlock: a: asked to stop by ");
    CHECK(holds(renewed.err, ": reboot\n"));
    CHECK(Json::parse(renewed.out)["stop_asked_by"]["reason"] == "reboot");
    CHECK(place.dlock({"release", "a", "--token", token}).exit_code == 0);
    check_message(ask_to_stop(place, {"a"}), 0, "nobody held a");
    check_message(ask_to_stop(place, {"--fence", "7", "a"}), 79, "a is not held with fence 7");
  });
}

TEST_CASE("stop: a client of another library is named, and the exit code is 75") {
  const Place place(Engine::redis);
  place.server().command({"SET", "job", "9d3f1c6a", "PX", "60000"});
  const auto asked = ask_to_stop(place, {"--compat", "redis-py", "-k", "job"});
  check_message(asked, 75, "cannot ask a client of ");
  CHECK(place.server().command({"EXISTS", "job"}).number == 1);
}

TEST_CASE("stop: on local: a dlock that was killed is named with the command that it left") {
  const Place place(Engine::local);
  auto job = place.begun_shell(
      R"(exec "$D" run -k a -- sh -c 'sleep 60 >&2 & echo $! >left; echo in; wait')");
  const pid_t left = std::stoi(read_file(place.dir() / "left"));
  job.signal(SIGKILL);
  REQUIRE(eventually([&] { return place.state("a")["holders"][0].contains("orphan"); }));
  const auto orphan = place.state("a")["holders"][0]["orphan"];
  CHECK(names(orphan) == Words{"pid", "command"});
  CHECK(orphan["pid"] == left);
  CHECK(orphan["command"] == "sleep");
  const auto shown = place.dlock({"inspect", "a"}).out;
  CHECK(holds(shown, "dlock " + std::to_string(job.pid()) + " is dead; of its command pid " +
                         std::to_string(left) + " (sleep) still runs"));
  check_message(ask_to_stop(place, {"a"}), 75, "cannot ask ");
  CHECK(is_alive(left));
  kill(left, SIGKILL);
  CHECK(eventually([&] { return place.is_free("a"); }));
}

TEST_CASE("stop, --force: a pattern without --yes lists the holders, and does nothing") {
  on_each_engine([](const Place& place) {
    auto job = place.hold("build-1", {"-t", "9s", "--label", "one"});
    place.acquired("build-2", {"--label", "two"});
    for (const std::string how : {"--stop", "--force"}) {
      CAPTURE(how);
      const auto refused = place.dlock({"release", how, "build-*"});
      check_says(refused, 64, "dlock: build-1 is held by ");
      CHECK(count_lines(refused.err) == 3);
      CHECK(holds(refused.err, " [one]\ndlock: build-2 is held by "));
      CHECK(holds(refused.err, "so say --yes\n"));
      CHECK(!place.state("build-1")["holders"][0].contains("stop_asked_by"));
      CHECK(!place.is_free("build-2"));
    }
    CHECK(job.running());
    check_says(ask_to_stop(place, {"--yes", "build-*"}), 75, "dlock: asked ");
    CHECK(job.wait().signal == SIGTERM);
    CHECK(place.dlock({"release", "--force", "--yes", "build-*"}).exit_code == 0);
    CHECK(place.is_free("build-2"));
  });
}

TEST_CASE("stop, --force: on a terminal a pattern asks, and only a yes does it") {
  const Place place(Engine::local);
  place.acquired("build-1", {"-t", "1h"});
  place.acquired("build-2", {"-t", "1h"});
  Watcher user(place);
  for (const std::string answer : {"n", "", "yonder"}) {
    CAPTURE(answer);
    user.type("$D release --force 'build-*'; echo code-$?");
    REQUIRE(user.shows("build-2 is held by "));
    REQUIRE(user.shows("evict the holders of these 2 keys? [y/N] "));
    user.type(answer);
    CHECK(user.shows("code-0"));
    CHECK(!place.is_free("build-1"));
  }
  user.type("$D release --stop 'build-1*'; echo code-$?");
  REQUIRE(user.shows("ask the holders to stop of this key? [y/N] "));
  user.type("n");
  CHECK(user.shows("code-0"));
  CHECK(!place.state("build-1")["holders"][0].contains("stop_asked_by"));
  user.type("$D release --force 'build-*'");
  REQUIRE(user.shows("[y/N] "));
  user.type("y");
  CHECK(user.shows("evicted "));
  CHECK(eventually([&] { return place.is_free("build-1") && place.is_free("build-2"); }));
}

}  // namespace dlock::test
