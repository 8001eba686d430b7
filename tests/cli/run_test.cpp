#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <set>
#include <sstream>

#include "cli/place.hpp"
#include "support/chance.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/one_of_tries.hpp"
#include "support/patient_start.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

std::vector<std::string> command(const std::string& key, std::vector<std::string> words) {
  words.insert(words.begin(), {"run", "-k", key, "--"});
  return words;
}

std::set<std::string> variables(const std::string& env_output) {
  std::set<std::string> all;
  std::size_t from = 0;
  for (auto end = env_output.find('\0'); end != std::string::npos;
       end = env_output.find('\0', from)) {
    all.insert(env_output.substr(from, end - from));
    from = end + 1;
  }
  return all;
}

/// Checks that `script` has the same output with and without dlock around it.
void check_same_inside(const Place& place, const std::string& before, const std::string& script) {
  ProcessOptions options;
  options.env["SCRIPT"] = script;
  const auto outside = place.shell(before + R"(sh -c "$SCRIPT")", options);
  const auto inside = place.shell(before + R"("$D" run -k a -- sh -c "$SCRIPT")", options);
  CHECK(inside.exit_code == outside.exit_code);
  CHECK(inside.out == outside.out);
  CHECK(inside.err == "");
}

/// Whether the signal's default action ends a process. libc uses two real-time signals itself.
bool ends_a_process(int signal) {
  for (const int harmless :
       {SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU}) {
    if (signal == harmless) return false;
  }
  return signal <= SIGSYS || signal >= SIGRTMIN;
}

TEST_CASE("run: exits with each code that its command can return") {
  on_each_engine([](const Place& place) {
    const int step = place.is_local() ? 1 : 15;
    for (int code = 0; code < 256; code += step) {
      const auto result = place.dlock(command("a", {"sh", "-c", "exit " + std::to_string(code)}));
      CHECK(result.exit_code == code);
      CHECK(without_late_releases(result.err) == "");
    }
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("run: dies of each signal that can end its command, those that dump core too") {
  on_each_engine([](const Place& place) {
    ProcessOptions options;
    options.before_exec = [] {
      const rlimit none{0, 0};
      setrlimit(RLIMIT_CORE, &none);
    };
    const int step = place.is_local() ? 1 : 3;
    for (int signal = 1; signal <= SIGRTMAX; signal += step) {
      if (!ends_a_process(signal)) continue;
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
  const int count = runs_of_this_test(150);
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

TEST_CASE("run: passes arguments on byte for byte") {
  on_each_engine([](const Place& place) {
    const std::vector<std::string> odd{
        "[a,b]", "[]",  "++",       "",    "--key=", "line\nbreak", "--",    "-h", "--version",
        "-k",    "a b", "\x80\xff", "'\"", "$HOME",  "{}",          "%s\\n", "=",  "-"};
    auto words = command("a", {"sh", "-c", R"(for a; do printf '<%s>' "$a"; done)", "sh"});
    words.insert(words.end(), odd.begin(), odd.end());
    std::string expected;
    for (const auto& each : odd) expected += "<" + each + ">";
    CHECK(place.dlock(words).out == expected);
    words.erase(words.begin() + 3);  // without the "--"
    CHECK(place.dlock(words).out == expected);
  });
}

TEST_CASE("run: reads its own options up to the first operand only") {
  const Place place(Engine::local);
  CHECK(place.dlock({"run", "-k", "a", "echo", "-k", "b", "--", "-n"}).out == "-k b -- -n\n");
  CHECK(place.dlock({"run", "-k", "a", "--", "sh", "-c", "echo $1", "-", "-h"}).out == "-h\n");
}

TEST_CASE("run: adds three variables to the environment and changes nothing else") {
  on_each_engine([](const Place& place) {
    ProcessOptions options;
    options.env["ODD"] = "a\nb=c ";
    options.env["DLOCK_LABEL"] = "of the caller";
    options.env["DLOCK_SERVER"] = place.url();
    auto outside = variables(run({"env", "-0"}, clean(options)).out);
    auto inside = variables(place.dlock(command("a", {"env", "-0"}), options).out);
    std::set<std::string> added;
    for (const auto& each : inside) {
      if (outside.erase(each) == 0) added.insert(each.substr(0, each.find('=')));
    }
    CHECK(outside.empty());
    CHECK(added == std::set<std::string>{"DLOCK_FENCE", "DLOCK_KEY", "DLOCK_OWNER"});
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

TEST_CASE("run: a fence is larger than every one before it") {
  on_each_engine([](const Place& place) {
    long last = 0;
    for (int i = 0; i < 5; ++i) {
      const auto fence = place.dlock(command("a", {"sh", "-c", "echo $DLOCK_FENCE"})).out;
      CHECK(std::stol(fence) > last);
      last = std::stol(fence);
      CHECK(last < 1L << 53);
    }
  });
}

TEST_CASE("run: stdin and stdout are the command's alone") {
  on_each_engine([](const Place& place) {
    ProcessOptions options;
    options.input = std::string(1'000'000, 'x') + "\nend without newline";
    const auto result = place.dlock({"run", "-v", "-k", "a", "--", "cat"}, options);
    CHECK(result.out == options.input);
    CHECK(holds(result.err, "dlock: "));
    CHECK(place.dlock(command("a", {"sh", "-c", "echo to stderr >&2"})).err == "to stderr\n");
  });
}

TEST_CASE("run: the command inherits descriptors, signal mask and ignored signals unchanged") {
  on_each_engine([](const Place& place) {
    check_same_inside(place, "exec 7>seven; ", "ls /proc/self/fd; echo here >&7; cat seven");
    const std::string signals = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    check_same_inside(place, "trap '' HUP USR1; ", signals);
    check_same_inside(place, "", signals + "; umask; pwd; ulimit -a");
  });
}

TEST_CASE("run -c: gives a line to the shell") {
  const Place place(Engine::local);
  const auto result = place.dlock({"run", "-k", "a", "-c", "echo $((40 + 2)); exit 7"});
  CHECK(result.out == "42\n");
  CHECK(result.exit_code == 7);
  CHECK(place.dlock({"run", "-k", "a", "--command=true"}).exit_code == 0);
  const auto both = place.dlock({"run", "-k", "a", "-c", "true", "false"});
  CHECK(both.exit_code == 64);
  CHECK(is_one_message(both.err));
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
      CHECK(result.exit_code == code);
      CHECK(is_one_message(result.err));
      CHECK(holds(result.err, "cannot run"));
      CHECK(holds(result.err, "interpreter") == (name == crlf));
      CHECK(result.out == "");
      CHECK(place.is_free("a"));
    }
  });
}

TEST_CASE("run: passes a signal on and waits for as long as the command takes") {
  on_each_engine([](const Place& place) {
    const std::string script =
        "trap 'echo got; while [ ! -e go ]; do sleep 0.01; done; exit 7' TERM; echo in;"
        "while :; do sleep 0.01; done";
    ProcessOptions options;
    options.cwd = place.dir().path();
    auto process = place.start(command("a", {"sh", "-c", script}), options);
    REQUIRE(eventually([&] { return process.out() == "in\n"; }));
    process.signal(SIGTERM);
    REQUIRE(eventually([&] { return process.out() == "in\ngot\n"; }));
    CHECK(!place.is_free("a"));
    write_file(place.dir() / "go", "");
    CHECK(process.wait().exit_code == 7);
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("run: dies of a signal that its command died of after it was passed on") {
  on_each_engine([](const Place& place) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
      CAPTURE(signal);
      auto process = place.hold("a");
      process.signal(signal);
      CHECK(process.wait().signal == signal);
      CHECK(place.is_free("a"));
    }
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
