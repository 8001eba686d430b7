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
#include <regex>
#include <set>
#include <sstream>

#include "cli/place.hpp"
#include "support/files.hpp"

namespace dlock::test {
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
