#include <doctest/doctest.h>
#include <signal.h>

#include <regex>
#include <utility>

#include "cli/place.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

using Json = nlohmann::ordered_json;

/// Runs `dlock run --status-fd 3 ARGUMENTS`, and parses the output on the descriptor.
Json status_of(const Place& place, const std::string& arguments, int exit_code) {
  const auto result =
      place.shell(R"("$D" run -q --status-fd 3 )" + arguments + " 3>status; exit $?");
  CHECK(result.exit_code == exit_code);
  const std::string text = read_file(place.dir() / "status");
  CHECK(count_lines(text) == 1);
  return Json::parse(text);
}

TEST_CASE("status: one object with these names in this order") {
  on_each_engine([](const Place& place) {
    const auto status = status_of(place, "-k a -- sh -c 'sleep 0.05; exit 3'", 3);
    CHECK(names(status) == std::vector<std::string>{"outcome", "exit_code", "child_exit",
                                                    "child_signal", "reason", "locks", "waited_ms",
                                                    "held_ms"});
    CHECK(names(status["locks"][0]) == std::vector<std::string>{"key", "fence"});
    CHECK(status["outcome"] == "exited");
    CHECK(status["exit_code"] == 3);
    CHECK(status["child_exit"] == 3);
    CHECK(status["child_signal"] == nullptr);
    CHECK(status["locks"][0]["key"] == "a");
    CHECK(status["held_ms"] >= 50);
    CHECK(status["waited_ms"] < 5000);
  });
}

TEST_CASE("status: tells how the command ended from how dlock ended") {
  on_each_engine([](const Place& place) {
    const auto signalled = status_of(place, "-k a -- sh -c 'kill -USR1 $$'", 138);
    CHECK(signalled["outcome"] == "signalled");
    CHECK(signalled["exit_code"] == 138);
    CHECK(signalled["child_exit"] == nullptr);
    CHECK(signalled["child_signal"] == SIGUSR1);

    const auto max_hold = status_of(place, "-k a --max-hold 0.1 -- sleep 60", 124);
    CHECK(max_hold["outcome"] == "max-hold");
    CHECK(max_hold["exit_code"] == 124);
    CHECK(max_hold["child_signal"] == SIGTERM);
    CHECK(holds(max_hold["reason"], "--max-hold"));

    for (const auto& [word, code] : {std::pair("no-such-command", 127), std::pair("/tmp", 126)}) {
      const auto not_started = status_of(place, std::string("-k a -- ") + word, code);
      CHECK(not_started["outcome"] == "not-started");
      CHECK(not_started["exit_code"] == code);
      CHECK(not_started["child_exit"] == nullptr);
      CHECK(holds(not_started["reason"], word));
    }
  });
}

TEST_CASE("status: tells what came instead of the command") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("a");
    const auto refused = status_of(place, "-k a -n -E 9 -- true", 9);
    CHECK(refused["outcome"] == "not-acquired");
    CHECK(refused["exit_code"] == 9);
    CHECK(refused["locks"].empty());
    CHECK(holds(refused["reason"], "a is held by "));

    const auto late = status_of(place, "-k a -w 0.2 -- true", 75);
    CHECK(late["outcome"] == "not-acquired");
    CHECK(late["waited_ms"] >= 200);

    auto waiter = place.start_shell(R"(exec "$D" run -q --status-fd 3 -k a -- true 3>status)");
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    waiter.signal(SIGINT);
    CHECK(waiter.wait().signal == SIGINT);
    const auto interrupted = Json::parse(read_file(place.dir() / "status"));
    CHECK(interrupted["outcome"] == "interrupted");
    CHECK(interrupted["exit_code"] == 130);
    CHECK(interrupted["reason"] == "signal INT");
  });
  const Place place(Engine::local);
  const auto error = status_of(place, "-k a --server unix:///nothing/here -- true", 69);
  CHECK(error["outcome"] == "error");
  CHECK(error["exit_code"] == 69);
  const auto late = status_of(place, "-w 0.3 -k a --server unix:///nothing/here -- true", 69);
  CHECK(late["waited_ms"] >= 300);
  CHECK(holds(error["reason"], "unix:///nothing/here"));
}

TEST_CASE("status: tells of settings that keep the command from being run") {
  const Place place(Engine::local);
  write_file(place.dir() / "conf", "no-such-setting = 1\n");
  for (const auto& [given, code, reason] :
       {std::tuple("-k a -t nonsense -- true", 64, "nonsense"),
        std::tuple("-k a --config conf -- true", 78, "conf:1"),
        std::tuple("-k a --server local:/no/such/place -- true", 71, "/no/such/place")}) {
    const std::string arguments = given;
    CAPTURE(arguments);
    const auto status = status_of(place, arguments, code);
    CHECK(status["outcome"] == "error");
    CHECK(status["exit_code"] == code);
    CHECK(status["locks"].empty());
    CHECK(holds(status["reason"], reason));
  }
  // A command line that fails to parse cannot name the descriptor.
  const auto unread = place.shell(R"("$D" run --status-fd 3 --no-such-flag 3>status)");
  CHECK(unread.exit_code == 64);
  CHECK(read_file(place.dir() / "status").empty());
  const auto closed = place.shell(R"("$D" run -k a -t nonsense --status-fd 5 -- true 5>&-)");
  check_message(closed, 64, "nonsense");
}

TEST_CASE("status: the command does not get the descriptor, and dlock says if it is of no use") {
  const Place place(Engine::local);
  const auto hidden = place.shell(
      R"("$D" run -k a --status-fd 5 -- sh -c '[ -e /proc/self/fd/5 ] || echo hidden' 5>status)");
  CHECK(hidden.out == "hidden\n");
  const auto closed = place.shell(R"("$D" run -k a --status-fd 5 -- true 5>&-)");
  check_message(closed, 64);
  const auto for_reading = place.shell(R"("$D" run -k a --status-fd 5 -- true 5</dev/null)");
  check_message(for_reading, 64);
  const auto full = place.shell(R"("$D" run -k a --status-fd 5 -- sh -c 'exit 4' 5>/dev/full)");
  check_message(full, 4);
}

TEST_CASE("status: dlock outlives a reader that has gone") {
  const Place place(Engine::local);
  const auto result = place.shell(
      R"({ "$D" run -k a --status-fd 5 -- sh -c 'exit 4' 5>&1 >/dev/null; echo $? >code; } | true)");
  REQUIRE(wait_for_file(place.dir() / "code"));
  REQUIRE(eventually([&] { return !read_file(place.dir() / "code").empty(); }));
  CHECK(read_file(place.dir() / "code") == "4\n");
}

TEST_CASE("status-fd: nobody reads it and a setting is invalid: 64 with its line") {
  const Place place(Engine::local);
  const auto result = place.shell(R"(
      mkfifo p; exec 3<>p 4>p 3<&-
      "$D" run -k a --status-fd 4 --grace 99h -- true
      echo $?)");
  CHECK(result.out == "64\n");
  CHECK(holds(result.err, "--grace"));
}

}  // namespace

namespace {

/// Whether `text` has these lines in this order.
bool tells(const std::string& text, const std::vector<std::string>& patterns) {
  auto from = text.cbegin();
  for (const std::string& pattern : patterns) {
    std::smatch found;
    if (!std::regex_search(from, text.cend(), found, std::regex("dlock: " + pattern + "\n"))) {
      MESSAGE("not told: " << pattern << "\n" << text);
      return false;
    }
    from = found[0].second;
  }
  return true;
}

const std::string in_a_time = R"( in (\d+\.\dms|\d+s))";

TEST_CASE("steps: -v tells each step of a run that waits, and how long it took") {
  on_each_engine([](const Place& place) {
    auto holder = place.hold("a");
    const ProcessOptions there{.cwd = place.dir().path()};
    auto waiter = patient_start(
        [&] {
          return place.start(
              {"run", "-v", "-t", "6s", "-k", "a", "-c", "until [ -e go ]; do sleep 0.01; done"},
              there);
        },
        [&] { return place.waiters("a") == 1; }, "it did not wait");
    holder.signal(SIGTERM);
    const auto renewed = [&] { return holds(waiter.err(), "renewed a for "); };
    if (!place.is_local()) CHECK(eventually([&] { return renewed() || !waiter.running(); }));
    write_file(place.dir() / "go", "");
    const auto result = waiter.wait();
    CHECK(result.exit_code == 0);
    std::vector<std::string> steps{"waiting: a is held by .*",
                                   "asked .* for a" + in_a_time + ": place 1, held by 1 owner, .*",
                                   "told that a is ours" + in_a_time,
                                   "a acquired after .*",
                                   "holding a at .*, fence .*",
                                   "released a" + in_a_time};
    if (place.is_local()) {
      std::swap(steps[0], steps[1]);  // its only request puts it in the queue
    } else {
      steps.insert(steps.begin(), "connected to unix://.*" + in_a_time);
      steps.insert(steps.end() - 1, "renewed a for 6s" + in_a_time);
    }
    CHECK(tells(result.err, steps));
    CHECK(count_lines(place.dlock({"run", "-k", "b", "--", "true"}).err) == 0);
  });
}

TEST_CASE("steps: -v tells them of acquire, renew, inspect and release, and stdout has none") {
  on_each_engine([](const Place& place) {
    const auto taken = place.dlock({"acquire", "-v", "-k", "a", "-t", "1m"});
    CHECK(count_lines(taken.out) == 1);
    CHECK(tells(taken.err, {"asked .* for a" + in_a_time + ": granted, fence \\d+, lease 1m00s"}));
    const std::string token = taken.out.substr(0, taken.out.find('\n'));
    CHECK(!holds(taken.err, token));
    const auto renewed = place.dlock({"renew", "-v", "-k", "a", "--token", token});
    CHECK(tells(renewed.err, {"renewed a for 1m00s" + in_a_time}));
    const auto seen = place.dlock({"inspect", "-v", "--json", "a"});
    CHECK(count_lines(seen.out) == 1);
    CHECK(tells(seen.err, {"asked .* how things stand" + in_a_time}));
    const auto released = place.dlock({"release", "-v", "-k", "a", "--token", token});
    CHECK(tells(released.err, {"released a" + in_a_time}));
    CHECK(!holds(released.err + renewed.err, token));
  });
}

}  // namespace

}  // namespace dlock::test
