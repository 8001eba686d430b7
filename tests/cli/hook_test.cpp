#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <set>

#include "base/process.hpp"
#include "cli/place.hpp"
#include "support/files.hpp"
#include "support/shell_terminal.hpp"

namespace dlock::test {
namespace {

/// A hook that appends a line for each event to the file `events`.
const std::string telling =
    R"(echo "$DLOCK_EVENT $(echo $DLOCK_KEY) fence=$DLOCK_FENCE exit=$DLOCK_EXIT_CODE" >>events)";

std::vector<std::string> events(const Place& place) {
  return lines_of(read_file(place.dir() / "events"));
}

/// Waits until the hook has written `count` lines to `events`.
bool has_told(const Place& place, std::size_t count) {
  const auto path = place.dir() / "events";
  return wait_for_file(path) && eventually([&] { return count_lines(read_file(path)) == count; });
}

ProcessOptions there(const Place& place) { return {.cwd = place.dir().path()}; }

/// A hook that blocks in the event until a test writes to the pipe `go`. It writes to `in` before
/// that, and to `out` afterwards.
std::string blocking(const Place& place, const std::string& event) {
  REQUIRE(mkfifo((place.dir() / "go").c_str(), 0600) == 0);
  return "[ $DLOCK_EVENT = " + event + " ] || exit 0; echo >in; read x <go; echo >out";
}

/// Unblocks the hook; opens the pipe `go` only if the hook reads it.
void let_go(const Place& place) {
  CHECK(place.shell("timeout 30 sh -c 'echo >go'").exit_code == 0);
}

/// Simulates Linux before 5.3, and sandboxes that reject unknown system calls.
void refuse_pidfd_open() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(program), program};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) _exit(99);
}

TEST_CASE("hook: is called also where processes have no descriptors") {
  const Place place(Engine::local);
  auto options = there(place);
  options.before_exec = refuse_pidfd_open;
  check_quiet(place.dlock({"run", "-k", "a", "--hook", "sleep 0.1; " + telling, "--", "true"},
                          std::move(options)));
  CHECK(events(place).size() == 2);
}

TEST_CASE("hook: is told of each event in order, with its facts") {
  on_each_engine([](const Place& place) {
    check_quiet(place.dlock({"run", "-k", "b", "-k", "a", "--hook", telling, "--", "sh", "-c",
                             "echo $DLOCK_FENCE >fence; exit 3"},
                            there(place)),
                3);
    const std::string fence = lines_of(read_file(place.dir() / "fence")).front();
    CHECK(events(place) == std::vector<std::string>{"acquired b a fence=" + fence + " exit=",
                                                    "released b a fence=" + fence + " exit=3"});
  });
}

TEST_CASE("hook: a waiter's knows the holder, and a lost lock's the reason") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a");
    const std::string hook =
        "echo \"$DLOCK_EVENT:$DLOCK_KEY:$DLOCK_FENCE:$DLOCK_HOLDER:$DLOCK_REASON:$DLOCK_WHERE\" "
        ">>events";
    auto options = there(place);
    options.env["DLOCK_FENCE"] = "17";  // from an enclosing run
    auto waiter = patient_start(
        [&] {
          return place.start(
              {"run", "-q", "-t", "6s", "-k", "a", "--hook", hook, "--", "sleep", "60"}, options);
        },
        [&] { return place.waiters("a") == 1; }, "it did not wait");
    REQUIRE(has_told(place, 1));
    CHECK(events(place)[0].starts_with("waiting:a::"));
    CHECK(holds(events(place)[0], "@"));
    CHECK(holds(events(place)[0], ":a is held by "));
    CHECK(events(place)[0].ends_with(":" + place.url()));
    CHECK(place.dlock({"release", "-k", "a", "--token", token}).exit_code == 0);
    REQUIRE(has_told(place, 2));
    CHECK(events(place)[1].starts_with("acquired:a:"));
    // The server keeps no reason for a holder that was evicted before it confirmed its hand-over.
    REQUIRE(eventually([&] {
      const auto state = place.state("a");
      return !state["holders"].empty() && state["holders"][0].contains("command_pid");
    }));
    CHECK(place.dlock({"release", "--force", "a", "--reason", "too old"}).exit_code == 0);
    CHECK(waiter.wait().exit_code == 79);
    REQUIRE(events(place).size() == 3);
    CHECK(events(place)[2].starts_with("lost:a:"));
    CHECK(holds(events(place)[2], "too old"));
  });
}

TEST_CASE("hook: a loss that is ignored is told of while the command runs on") {
  const Place place(Engine::redis);
  auto run = patient_start(
      [&] {
        return place.start(
            {"run", "-q", "-t", "6s", "-k", "a", "--on-lost", "ignore", "--hook", telling, "--",
             "sh", "-c", "echo >in; while [ ! -e end ]; do sleep 0.05; done; exit 4"},
            there(place));
      },
      [&] { return std::filesystem::exists(place.dir() / "in"); }, "the command did not start");
  CHECK(place.dlock({"release", "--force", "a"}).exit_code == 0);
  REQUIRE(has_told(place, 2));
  CHECK(events(place)[1].starts_with("lost a "));
  CHECK(run.running());
  write_file(place.dir() / "end", "");
  CHECK(run.wait().exit_code == 4);
  CHECK(events(place).size() == 2);
}

TEST_CASE("hook: what it prints comes out also at a terminal that stops the background's output") {
  const Place place(Engine::local);
  ShellTerminal user(dlock_path(), {{"DLOCK_SERVER", place.url()}, {"DLOCK_CONFIG", "/dev/null"}});
  user.type("stty tostop; $D run -k a --hook 'echo told-$DLOCK_EVENT; exit 1' -- true");
  CHECK(user.shows("told-acquired"));
  CHECK(user.shows("--hook exited with 1"));
  user.type("echo back-$((1+1))");
  CHECK(user.shows("back-2"));
}

TEST_CASE("hook: neither the lock nor the command waits for it, nor does --wait-tree") {
  on_each_engine([](const Place& place) {
    const auto hook = blocking(place, "acquired");
    auto run = place.start({"run", "-k", "a", "--wait-tree", "--hook", "(sleep 60 &); " + hook,
                            "--", "sh", "-c", "while [ ! -e in ]; do sleep 0.05; done; echo >ran"},
                           there(place));
    REQUIRE(wait_for_file(place.dir() / "ran"));
    CHECK(eventually([&] { return place.is_free("a"); }));
    CHECK(run.running());
    let_go(place);
    CHECK(run.wait().exit_code == 0);
    CHECK(wait_for_file(place.dir() / "out"));
  });
}

TEST_CASE(
    "hook: outlives the command that is stopped, with all it started, when the lock is lost") {
  // The process ends even if the test is aborted.
  const std::string outliving =
      "(while [ -e go ] && [ ! -e over ]; do sleep 0.1; done; echo >late)";
  for (const std::string more : {"-q", "--watchdog"}) {
    CAPTURE(more);
    const Place place(Engine::redis);
    const auto hook = blocking(place, "lost");
    auto run = patient_start(
        [&] {
          return place.start(
              {"run", more, "-t", "6s", "-k", "a", "--hook",
               "if [ $DLOCK_EVENT = acquired ]; then (" + outliving + " &); fi; " + hook, "--",
               "sh", "-c", "trap '' TERM; echo >running; sleep 60; sleep 60"},
              there(place));
        },
        [&] { return std::filesystem::exists(place.dir() / "running"); },
        "the command did not start");
    CHECK(place.dlock({"release", "--force", "a"}).exit_code == 0);
    REQUIRE(wait_for_file(place.dir() / "in"));
    let_go(place);
    CHECK(run.wait().exit_code == 79);
    CHECK(wait_for_file(place.dir() / "out"));
    write_file(place.dir() / "over", "");
    CHECK(wait_for_file(place.dir() / "late"));
  }
}

TEST_CASE("hook: has the command's environment and the facts, and nothing else of dlock's") {
  const Place place(Engine::local);
  auto options = there(place);
  options.env["OF_USER"] = "x";
  const auto result = place.dlock(
      {"run", "-k", "a", "--hook", "[ $DLOCK_EVENT = acquired ] && env >hook.env; exit 0", "--",
       "sh", "-c", "env >command.env"},
      options);
  CHECK(result.exit_code == 0);
  const auto names_in = [&](const char* file) {
    std::set<std::string> names;
    for (const auto& line : lines_of(read_file(place.dir() / file))) {
      names.insert(line.substr(0, line.find('=')));
    }
    return names;
  };
  const auto of_hook = names_in("hook.env");
  const auto of_command = names_in("command.env");
  CHECK(of_hook.contains("OF_USER"));
  for (const std::string& name : of_hook) {
    const std::set<std::string> facts{"DLOCK_EVENT", "DLOCK_WHERE"};
    CAPTURE(name);
    CHECK((of_command.contains(name) || facts.contains(name)));
  }
  CHECK(of_hook.contains("DLOCK_FENCE"));
  CHECK(!of_hook.contains("DLOCK_OWNER"));
}

TEST_CASE("hook: has an input that is empty, and keeps no descriptor of the caller's but stderr") {
  const Place place(Engine::local);
  write_file(place.dir() / "secret", "");
  const auto result = place.shell(
      R"(echo input | "$D" run -k a --hook 'cat; echo to stdout
           for fd in 3 4 5 6; do [ -e /proc/$$/fd/$fd ] && echo has $fd; done; exit 0' \
           --status-fd 6 -- cat 5<secret 6>status 2>err | cat >piped; cat piped err)");
  CHECK(result.out == "input\nto stdout\nto stdout\n");
}

TEST_CASE("hook: its failures are one warning, and change neither the job nor its exit code") {
  const Place place(Engine::local);
  for (const char* bad : {"exit 3", "no-such-command", "kill -9 $$", "syntax ( error"}) {
    CAPTURE(bad);
    const auto result =
        place.dlock({"run", "-q", "-k", "a", "--hook", std::string("exec 2>/dev/null; ") + bad,
                     "--", "sh", "-c", "echo did; exit 4"});
    CHECK(result.exit_code == 4);
    CHECK(result.out == "did\n");
    CHECK(holds(result.err, "dlock: warning: the command of --hook "));
  }
  CHECK(
      is_one_message(place.dlock({"run", "-q", "-k", "a", "--hook", "exit 3", "--", "true"}).err));
}

TEST_CASE(
    "hook: its failure is told, also where whoever started dlock ignored the end of children") {
  const Place place(Engine::local);
  ProcessOptions options = there(place);
  options.before_exec = [] { ::signal(SIGCHLD, SIG_IGN); };
  check_says(
      place.start({"run", "-q", "-k", "a", "--hook", "exit 3", "--", "true"}, options).wait(), 0,
      "dlock: warning: the command of --hook exited with 3");
}

TEST_CASE("hook: what ends all processes of a service leaves it to tell of the release") {
  on_each_engine([](const Place& place) {
    auto job =
        place.start({"run", "-k", "a", "--hook", telling, "--", "sleep", "60"}, there(place));
    REQUIRE(has_told(place, 1));
    const auto children = children_of(job.pid()).value();
    const auto hook = std::find_if(children.begin(), children.end(), [](pid_t child) {
      return read_file("/proc/" + std::to_string(child) + "/comm") == "dlock-hook\n";
    });
    REQUIRE(hook != children.end());
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE}) kill(*hook, signal);
    job.signal(SIGTERM);
    CHECK(job.wait().signal == SIGTERM);
    const auto told = events(place);
    REQUIRE(told.size() == 2);
    CHECK(told[1].starts_with("released a "));
  });
}

TEST_CASE("hook: its command has the signals that dlock found") {
  const Place place(Engine::local);
  const std::string hook = "grep SigIgn /proc/self/status >>ignored";
  const auto result = place.shell(
      "grep SigIgn /proc/self/status >plain; \"$D\" run -k a --hook '" + hook +
      "' -- true; trap '' TERM; " +
      "grep SigIgn /proc/self/status >plain2; \"$D\" run -k a --hook '" + hook + "' -- true");
  CHECK(result.exit_code == 0);
  const std::string plain = read_file(place.dir() / "plain"),
                    other = read_file(place.dir() / "plain2");
  CHECK(plain != other);
  CHECK(read_file(place.dir() / "ignored") == plain + plain + other + other);
}

TEST_CASE("hook: a call that does not end is stopped when dlock exits") {
  const Place place(Engine::local);
  const auto result = place.dlock({"run", "-q", "-k", "a", "--hook",
                                   "echo $$ >>pids; sleep 60 & wait", "--", "sh", "-c", "exit 4"},
                                  there(place));
  check_message(result, 4, "ran for too long");
  CHECK(result.duration < std::chrono::seconds(50));
  for (const auto& pid : lines_of(read_file(place.dir() / "pids"))) {
    CHECK(!is_alive(static_cast<pid_t>(std::stoi(pid))));
  }
}

TEST_CASE("hook: is not told of a release that did not succeed") {
  const Place place(Engine::redis);
  auto options = there(place);
  options.env["SERVER"] = std::to_string(place.server().pid());
  options.env["HOOK"] = telling + "; [ $DLOCK_EVENT != acquired ] || kill -9 $SERVER";
  // The server is dead by the time dlock finds that the command does not exist.
  const auto result = place.shell(R"(
      slow='strace -D -f -qq -o /dev/null -P /nonexistent -e inject=execve:delay_enter=5000000'
      $slow true 2>/dev/null || exit 0
      $slow "$D" run -q -k a -t 1m --hook "$HOOK" -- /nonexistent
      echo $?)",
                                  options);
  if (result.out.empty()) return;
  CHECK(result.out == "127\n");
  REQUIRE(events(place).size() == 2);
  CHECK(events(place)[0].starts_with("acquired "));
  CHECK(events(place)[1].starts_with("error "));
}

}  // namespace
}  // namespace dlock::test
