#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "cli/place.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

const std::string plain = "plain";

/// The wrappers that a user may write before COMMAND; a script has one of them in $W.
std::map<std::string, std::string> wrappers(const Place& place) {
  return {{plain, ""},
          {"timeout", "timeout 60"},
          {"flock", "flock " + (place.dir() / "flocked")},
          {"dlock", dlock_path() + " run -k a --"}};
}

std::string ending(const Result& result) {
  if (result.signal != 0) return "signal " + std::to_string(result.signal);
  return "exit code " + std::to_string(result.exit_code);
}

struct Script {
  std::string text;
  /// The wrappers with a legitimate difference, and their output.
  std::map<std::string, std::string> differs;
};

const Script scripts[] = {
    {"for c in 0 1 7 75 79 124 126 127 128 255; do $W sh -c \"exit $c\"; echo $?; done", {}},
    {"for s in HUP INT QUIT TERM KILL USR1 PIPE; do $W sh -c 'kill -'$s' $$'; echo $?; done", {}},
    {"$W no-such-command-anywhere 2>/dev/null; echo $?; $W /etc/passwd 2>/dev/null; echo $?",
     {{"flock", "69\n69\nexit code 0"}}},
    {"printf '1\\n2\\n3\\n' | $W tr 1-3 a-c | cat", {}},
    {"printf '1\\n2\\n' | { $W sh -c 'read x; echo \"first $x\"'; read y; echo \"then $y\"; }", {}},
    {"head -c 300000 /dev/zero | $W cat | wc -c", {}},
    {"$W head -c 300000 /dev/zero | wc -c", {}},
    {"$W yes | head -n 1; echo ${PIPESTATUS[0]}", {}},
    {"X='a  b' Y= $W sh -c 'echo \"<$X>\" \"<$Y>\" \"${Z-unset}\"'", {}},
    {"$W printf '<%s>' 'a  b' '' '*' -- -x -k '[a,b]' $'new\\nline'", {}},
    {"printf 'a\\0b c\\0' | xargs -0 -n 1 $W printf '<%s>'", {}},
    {"$W sh -c 'echo out; echo err >&2; echo out' 2>&1", {}},
    {"$W sh -c 'echo seven >&7' 7>seven; cat seven; $W /bin/echo >&- 2>&1; echo $?", {}},
    {"cd /; umask 027; ulimit -n 99; $W sh -c 'pwd; umask; ulimit -n'", {}},
    {"$W sh -c '(while kill -0 $$; do sleep 0.01; done 2>/dev/null; sleep 0.2; echo late) & "
     "echo early' | cat",
     {}},
    {"set -e; for i in 1 2 3; do echo $i; $W sh -c \"[ $i != 2 ]\"; done; echo over", {}},
    {"if $W false; then echo yes; else echo no; fi; $W true && ! $W false && echo both", {}},
    {"x=$($W sh -c 'echo inside; exit 4'); echo \"$x $?\"", {}},
    {"while read -r n; do $W echo \"line $n\" </dev/null; done <<< $'1\\n2'", {}},
    {"$W sh -c 'sleep 0.1; exit 6' & wait $!; echo $?", {}},
    {"$W setsid sh -c 'sleep 0.1; exit 9'; echo $?; $W perl -e 'setpgrp(0, 0); exit(getpgrp(0) != "
     "$$)'; echo "
     "$?",
     {}},
    {"trap '' INT TERM; $W sh -c 'kill -INT $$; kill -TERM $$; echo ignored'; echo $?",
     {{"timeout", "130\nexit code 0"}}},
};

/// A signal to the wrapper of COMMAND, or to plain COMMAND. A wrapper with another result keeps the
/// signal to itself, and COMMAND runs on without the wrapper.
struct Signalled {
  int signal;
  bool timeout_passes_on;
};

constexpr Signalled signalled[] = {{SIGTERM, true}, {SIGINT, true},   {SIGHUP, true},
                                   {SIGQUIT, true}, {SIGUSR1, false}, {SIGUSR2, false}};

std::string observed(const Place& place, const std::string& wrapper, const std::string& script,
                     int signal) {
  const ProcessOptions options{.env = {{"W", wrapper}, {"DLOCK_SERVER", place.url()}},
                               .cwd = place.dir().path()};
  Process process({"bash", "-c", script}, clean(options));
  if (signal != 0) {
    if (!eventually([&] { return process.out().ends_with(".\n"); })) return "did not begin";
    // Until timeout(1) sleeps, it does not know its COMMAND yet and dies of a signal.
    if (!eventually([&] { return is_in_state('S', process.pid()); })) return "did not wait";
    process.signal(signal);
  }
  const Result result = process.wait();
  std::string all = result.out + ending(result);
  const auto command = all.find("pid ");
  if (command == std::string::npos) return all;
  const auto end = all.find(".\n");
  const bool alive = is_alive(static_cast<pid_t>(std::stol(all.substr(command + 4))));
  return all.erase(command, end + 2 - command) + (alive ? ", COMMAND runs on" : "");
}

}  // namespace

TEST_CASE("alike: scripts see the same below flock, timeout, dlock and nothing") {
  const Place place(Engine::local);
  for (const Script& script : scripts) {
    CAPTURE(script.text);
    const std::string expected = observed(place, "", script.text, 0);
    for (const auto& each : wrappers(place)) {
      const auto& name = each.first;
      const auto& wrapper = each.second;
      CAPTURE(name);
      const auto other = script.differs.find(name);
      CHECK(observed(place, wrapper, script.text, 0) ==
            (other == script.differs.end() ? expected : other->second));
    }
  }
}

TEST_CASE("alike: a signal to dlock does what it does to the plain command, unlike with flock") {
  const Place place(Engine::local);
  const std::string heeds =
      "exec $W sh -c 'trap \"echo got; exit 3\" TERM INT HUP QUIT USR1 USR2; echo pid $$.; "
      "while :; do sleep 0.01; done'";
  const std::string dies = "exec $W sh -c 'echo pid $$.; exec sleep 60'";
  for (const auto& each_signal : signalled) {
    const int signal = each_signal.signal;
    const bool timeout_passes_on = each_signal.timeout_passes_on;
    CAPTURE(signal);
    const std::string died = "signal " + std::to_string(signal);
    for (const auto& each : wrappers(place)) {
      const auto& name = each.first;
      const auto& wrapper = each.second;
      CAPTURE(name);
      const bool passes_on = name != "flock" && (name != "timeout" || timeout_passes_on);
      CHECK(observed(place, wrapper, heeds, signal) ==
            (passes_on ? "got\nexit code 3" : died + ", COMMAND runs on"));
      CHECK(observed(place, wrapper, dies, signal) ==
            (passes_on ? died : died + ", COMMAND runs on"));
    }
  }
}

/// Whether dlock waited for the file while the shell watched, and got it, with SIGURG still
/// ignored.
bool leaves_sigurg_ignored() {
  const Place place(Engine::local);
  const std::string ignored = "trap '' URG; grep SigIgn /proc/self/status & wait";
  place.acquired("a");
  // In a container, /proc/locks shows only waiters for living processes.
  const auto result = place.shell(ignored + R"(; "$D" release --force a
      file=${DLOCK_SERVER#local:}/a.dlock
      flock "$file" sh -c ': >held; until [ -e go ]; do sleep 0.01; done' &
      until [ -e held ]; do sleep 0.01; done
      "$D" run -k a -- grep SigIgn /proc/self/status & run=$!
      until grep -q -e '-> FLOCK' /proc/locks; do
        kill -0 $run || break
        sleep 0.01
      done
      : >go; wait)");
  CAPTURE(result.err);
  const auto lines = lines_of(result.out);
  if (lines.size() < 2) return false;
  CHECK(lines.front() == lines.back());
  return true;
}

TEST_CASE("alike: an ignored SIGURG stays so, though the wait for a lock's file has used it") {
  // dlock waits for five seconds, and a busy machine may be that late.
  CHECK(in_one_of(3, leaves_sigurg_ignored));
}

TEST_CASE("alike: KILL to a job's process group, as agents of CI send it, leaves nothing of it") {
  const Place place(Engine::local);
  auto all = wrappers(place);
  all["guard"] = dlock_path() + " guard --state " + (place.dir() / "seen") + " --fence 1 --";
  all.erase("timeout");  // timeout leaves the process group
  for (const auto& [name, wrapper] : all) {
    CAPTURE(name);
    const ProcessOptions options{.env = {{"W", wrapper}, {"DLOCK_SERVER", place.url()}}};
    const std::string job = "$W sh -c 'trap \"\" TERM; sleep 60 & echo $!; wait'; echo went-on";
    Process process({"sh", "-c", job}, clean(options));
    REQUIRE(eventually([&] { return process.out().ends_with("\n"); }));
    const pid_t helper = std::stoi(process.out());
    kill(-process.pid(), SIGTERM);
    kill(-process.pid(), SIGKILL);
    process.wait();
    CHECK(eventually([&] { return !is_alive(helper); }));
    CHECK(eventually([&] { return place.is_free("a"); }));
  }
}

/// A terminal sends INT to the shell and to all that it waits for. timeout leaves the group.
TEST_CASE("alike: INT to the whole job stops a loop of the shell") {
  const Place place(Engine::local);
  for (const auto& each : wrappers(place)) {
    const auto& name = each.first;
    const auto& wrapper = each.second;
    if (name == "timeout") continue;
    CAPTURE(name);
    const ProcessOptions options{.env = {{"W", wrapper}, {"DLOCK_SERVER", place.url()}}};
    const std::string loop = "for i in 1 2 3; do $W sh -c 'echo in; exec sleep 60'; done; echo on";
    Process process({"bash", "-c", loop}, clean(options));
    REQUIRE(eventually([&] { return process.out() == "in\n"; }));
    kill(-process.pid(), SIGINT);
    const Result result = process.wait();
    CHECK(result.signal == SIGINT);
    CHECK(result.out == "in\n");
  }
}

namespace {

/// The lines of `text` that are not in `other`.
std::string beside(const std::string& text, const std::string& other) {
  std::multiset<std::string> known;
  std::istringstream others(other);
  for (std::string line; std::getline(others, line);) known.insert(line);
  std::string rest;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto found = known.find(line);
    if (found == known.end()) {
      rest += line + '\n';
    } else {
      known.erase(found);
    }
  }
  return rest;
}

/// `around` is the part of a script before the command, with or without dlock.
void check_same(const Place& place, const std::string& around,
                const std::function<void()>& before_exec = {}) {
  CAPTURE(around);
  const ProcessOptions options{.env = {{"PORTRAIT", DLOCK_PORTRAIT}}, .before_exec = before_exec};
  const std::string subject = "\"$PORTRAIT\" 'a b' '' '[]'; exit $?";
  const Result direct = place.shell(around + " " + subject, options);
  const Result below = place.shell(around + " \"$D\" run -k a -- " + subject, options);
  REQUIRE(direct.exit_code == 0);
  CHECK(below.exit_code == 0);
  CHECK(below.err == direct.err);
  CHECK(count_lines(direct.out) > 80);

  // The only thing that dlock removes: its child dies with it.
  CHECK(beside(direct.out, below.out) == "dies with its parent of 0\n");
  const std::regex value("(env DLOCK_[A-Z]*)=.*");
  CHECK(std::regex_replace(beside(below.out, direct.out), value, "$1") ==
        "env DLOCK_FENCE\nenv DLOCK_KEY\nenv DLOCK_OWNER\n"
        "dies with its parent of 9\n");
}

/// Sets further attributes that a process inherits.
void odd_inheritance() {
  umask(0027);
  setpriority(PRIO_PROCESS, 0, 3);
  prctl(PR_SET_TIMERSLACK, 123'456);
  personality(ADDR_NO_RANDOMIZE);
  const rlimit files{200, 300};
  setrlimit(RLIMIT_NOFILE, &files);
  const rlimit core{0, 0};
  setrlimit(RLIMIT_CORE, &core);
  const int adjust = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  [[maybe_unused]] const auto adjusted = write(adjust, "321", 3);
  close(adjust);
  syscall(SYS_ioprio_set, 1, 0, (2 << 13) | 7);
  const sched_param batch{0};
  sched_setscheduler(0, SCHED_BATCH, &batch);
  const itimerval timer{{0, 0}, {1000, 0}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  CPU_ZERO(&allowed);
  CPU_SET(first, &allowed);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

void blocked_signals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int number : {SIGUSR1, SIGTERM, SIGCHLD, SIGPIPE, SIGRTMIN + 3}) {
    sigaddset(&blocked, number);
  }
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
}

void no_new_privileges_and_a_filter() {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  sock_filter allow_all[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog program{1, allow_all};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

}  // namespace

TEST_CASE("transparency: what the command sees of itself equals a direct exec, plus three names") {
  on_each_engine([](const Place& place) {
    check_same(place, "");
    check_same(place, "exec 7>seven 9<seven 8>&7;");
    check_same(place, "exec <&- 2>/dev/null;");
    check_same(place, "nohup");
    check_same(place, "env --ignore-signal=CHLD --ignore-signal=INT");
    check_same(place, "trap '' HUP QUIT TERM USR1 USR2 PIPE TSTP TTIN TTOU XFSZ;");
    check_same(place, "cd /; umask 0; ulimit -n 123; ulimit -s 4096;");
  });
}

TEST_CASE("transparency: what processes hand down besides reaches the command unchanged") {
  on_each_engine([](const Place& place) {
    check_same(place, "", odd_inheritance);
    // Run by env as in a direct exec, since dash would unblock them.
    check_same(place, "", no_new_privileges_and_a_filter);
  });
}

TEST_CASE("transparency: signals that were blocked are blocked in the command, and no others") {
  on_each_engine([](const Place& place) {
    const ProcessOptions options{.before_exec = blocked_signals};
    const std::string blocked = "/proc/self/status: SigBlk";
    const auto line = [&](const std::string& out) {
      return out.substr(out.find(blocked), blocked.size() + 20);
    };
    const Result direct = run({DLOCK_PORTRAIT}, options);
    const Result below = place.dlock({"run", "-k", "a", "--", DLOCK_PORTRAIT}, options);
    CHECK(line(below.out) == line(direct.out));
    CHECK(!holds(line(direct.out), "0000000000000000"));
  });
}

}  // namespace dlock::test
