#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <set>
#include <sstream>

#include "cli/place.hpp"
#include "support/chance.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

std::vector<std::string> command(const std::string& key, std::vector<std::string> words) {
  words.insert(words.begin(), {"run", "-k", key, "--"});
  return words;
}

TEST_CASE("run: exits with the code of its command, also with one of dlock's own") {
  on_each_engine([](const Place& place) {
    for (const int code : {0, 1, 75, 79, 124, 128, 255}) {
      const auto result = place.dlock(command("a", {"sh", "-c", "exit " + std::to_string(code)}));
      CHECK(result.exit_code == code);
      CHECK(without_late_releases(result.err) == "");
    }
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("run: dies of the signal that its command dies of, one that dumps core too") {
  on_each_engine([](const Place& place) {
    const ProcessOptions options{.before_exec = [] {
      const rlimit none{0, 0};
      setrlimit(RLIMIT_CORE, &none);
    }};
    for (const int signal : {SIGHUP, SIGKILL, SIGSEGV, SIGPIPE, SIGTERM, SIGRTMIN + 3}) {
      CAPTURE(signal);
      const std::string kill = "kill -" + std::to_string(signal) + " $$";
      CHECK(place.dlock(command("a", {"sh", "-c", kill}), options).signal == signal);
      CHECK(place.is_free("a"));
    }
    const auto told = place.shell(R"("$D" run -k a -- sh -c 'kill -TERM $$'; echo $?)");
    CHECK(told.out == "143\n");
  });
}

TEST_CASE("run: a command that ends at once is never missed, also where SIGCHLD is ignored") {
  const int count = runs_of_this_test(40);
  on_each_engine([&](const Place& place) {
    for (const std::string before : {"", "env --ignore-signal=CHLD "}) {
      CAPTURE(before);
      const std::string loop = "i=0; while [ $i -lt " + std::to_string(count) + " ]; do " + before +
                               "\"$D\" run -q -k a -- false; [ $? = 1 ] || exit 2; i=$((i+1)); "
                               "done; echo all";
      const Result result = place.start_shell(loop).wait(milliseconds(200'000));
      CHECK(result.out == "all\n");
      CHECK(without_late_releases(result.err) == "");
    }
  });
}

TEST_CASE("run --max-hold: of a command that ignores TERM and its daemon nothing lives on, 124") {
  on_each_engine([](const Place& place) {
    // On a busy machine, the time may be over before the daemon has begun, but not in every try.
    CHECK(in_one_of(3, [&] {
      const Result result =
          place.dlock({"run", "-k", "a", "--max-hold", "3s", "--grace", "100ms", "--", "sh", "-c",
                       "trap '' TERM INT HUP; (setsid sh -c 'sleep 60 & echo $! $$; wait' &); "
                       "echo $$; while :; do sleep 0.05; done"});
      CHECK(result.exit_code == 124);
      std::istringstream words(result.out);
      std::vector<pid_t> family;
      for (pid_t pid = 0; words >> pid;) family.push_back(pid);
      for (const pid_t pid : family) CHECK_FALSE(is_alive(pid));
      CHECK(place.is_free("a"));
      return family.size() == 3;
    }));
  });
}

TEST_CASE("run: names keys and fences in the order the user gave them") {
  on_each_engine([](const Place& place) {
    const auto result = place.shell(
        R"("$D" run -k zeta -k 'al pha' -k zeta -k mid --status-fd 3 -- \
           sh -c 'echo "$DLOCK_KEY"; echo "$DLOCK_FENCE"' 3>status)");
    const auto status = nlohmann::json::parse(read_file(place.dir() / "status"));
    std::string fences;
    for (const auto& lock : status["locks"]) {
      fences += (fences.empty() ? "" : ",") + std::to_string(lock["fence"].get<long>());
    }
    CHECK(result.out == "zeta\nal pha\nmid\n" + fences + "\n");
    CHECK(status["locks"].size() == 3);
    CHECK(status["locks"][1]["key"] == "al pha");
  });
}

TEST_CASE("run: stdin and stdout are the command's alone") {
  on_each_engine([](const Place& place) {
    const ProcessOptions options{.input = std::string(1'000'000, 'x') + "\nend without newline"};
    const auto result = place.dlock({"run", "-v", "-k", "a", "--", "cat"}, options);
    CHECK(result.out == options.input);
    CHECK(holds(result.err, "dlock: "));
    CHECK(place.dlock(command("a", {"sh", "-c", "echo to stderr >&2"})).err == "to stderr\n");
  });
}

TEST_CASE("run: 127 for a command that is not there, 126 for one that cannot be executed") {
  on_each_engine([](const Place& place) {
    write_file(place.dir() / "plain", "no program");
    const std::string crlf = place.dir() / "crlf";
    write_file(crlf, "#!/bin/sh\r\necho\r\n");
    REQUIRE(chmod(crlf.c_str(), 0755) == 0);
    const std::vector<std::pair<std::string, int>> commands{
        {"no-such-command-anywhere", 127},
        {"/no/such/file", 127},
        {"", 127},
        {place.dir() / "plain", 126},
        {place.dir().path(), 126},
        {"esc\x1b[31m\n", 127},
        {crlf, 127},
    };
    for (const auto& each : commands) {
      const auto& name = each.first;
      const int code = each.second;
      CAPTURE(name);
      const auto result = place.dlock({"run", "-k", "a", "--min-hold", "1m", "--", name});
      check_message(result, code, "cannot run");
      CHECK(holds(result.err, "interpreter") == (name == crlf));
      CHECK(place.is_free("a"));
    }
  });
}

TEST_CASE("run: passes a signal on and waits for as long as the command takes") {
  on_each_engine([](const Place& place) {
    const std::string script =
        "trap 'echo got; while [ ! -e go ]; do sleep 0.01; done; exit 7' TERM; echo in;"
        "while :; do sleep 0.01; done";
    auto process = place.start(command("a", {"sh", "-c", script}), {.cwd = place.dir().path()});
    REQUIRE(eventually([&] { return process.out() == "in\n"; }));
    process.signal(SIGTERM);
    REQUIRE(eventually([&] { return process.out() == "in\ngot\n"; }));
    CHECK(!place.is_free("a"));
    write_file(place.dir() / "go", "");
    CHECK(process.wait().exit_code == 7);
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("run: killed with SIGKILL takes its command with it, and the key comes free") {
  on_each_engine([](const Place& place) {
    auto process = patient_start(
        [&] {
          return place.start(
              {"run", "-k", "a", "-t", "6s", "--", "sh", "-c", "echo $$; exec sleep 60"});
        },
        [](const Process& run) { return run.out().ends_with("\n"); }, "the command did not start");
    const pid_t command_pid = std::stoi(process.out());
    process.signal(SIGKILL);
    CHECK(eventually([&] { return !is_alive(command_pid); }));
    const auto next = place.dlock({"run", "-k", "a", "-w", "40", "--", "true"});
    CHECK(next.exit_code == 0);
    CHECK(process.wait().signal == SIGKILL);
  });
}

}  // namespace
}  // namespace dlock::test
