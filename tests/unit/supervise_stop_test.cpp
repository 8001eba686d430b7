#include <doctest/doctest.h>
#include <signal.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/wait.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/process.hpp"
#include "support/supervised.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

namespace {

std::vector<pid_t> pids(const std::string& text) {
  std::istringstream words(text);
  std::vector<pid_t> found;
  for (pid_t pid = 0; words >> pid;) found.push_back(pid);
  return found;
}

/// Prints its own pid and those of a daemon (double fork, own session) and that one's child; all of
/// them ignore TERM.
const char* const stubborn_family =
    "trap '' TERM INT HUP;"
    "(setsid sh -c 'sleep 60 & echo $! $$; wait' &);"
    "echo $$; while :; do sleep 0.05; done";

/// It waits in a builtin, as dash loses a signal that arrives during its vfork. The child that it
/// waits for ignores TERM from its fork on.
const char* const handles_term =
    "trap '' TERM; sleep 60 & trap 'echo asked; kill -9 $!; exit 0' TERM; echo ready; until wait; "
    "do :; done";

void check_all_dead(const std::string& out, std::size_t expected) {
  const auto family = pids(out);
  CHECK(family.size() == expected);
  for (const pid_t pid : family) CHECK_FALSE(is_alive(pid));
}

/// Whether no signal to this process is pending.
bool has_heard_all(pid_t pid) {
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
  return status.find("ShdPnd:\t0000000000000000\n") != std::string::npos;
}

/// The command line `words` under strace, which delays a system call as `delay` says in strace's
/// syntax. Without permission to trace, `words` itself.
std::vector<std::string> held_up(const std::string& delay, std::vector<std::string> words) {
  const std::string call = delay.substr(0, delay.find(':'));
  const std::vector<std::string> strace{
      "strace", "-D", "-qq", "-o", "/dev/null", "-e", "trace=" + call, "-e", "inject=" + delay};
  auto trial = strace;
  trial.emplace_back("true");
  if (run(trial).exit_code == 0) words.insert(words.begin(), strace.begin(), strace.end());
  return words;
}

}  // namespace

TEST_CASE("a family that ignores TERM and left its session is dead when the lease ends") {
  // On a busy machine, dlock or the family may be late now and then, but not every time.
  CHECK(in_one_of(5, [] {
    const auto result = run(supervised(shell(stubborn_family), {"lease=2000", "grace=100"}));
    CHECK(result.exit_code == 79);
    const std::size_t family = pids(result.out).size();
    check_all_dead(result.out, family);
    if (family < 3) return false;
    CHECK(says(result, "lost code=-1 signal=9 error=0 noticed=1 survivors=0"));
    return says(result, "in-time=1");
  }));
}

// The lowest process gets the signal first. The command also waits for a child that ignores TERM,
// else it might end with the daemon before its own signal.
TEST_CASE("descendants in a group of their own are asked to end before they are killed") {
  const TempDir dir;
  auto dlock =
      Process(supervised(shell("setsid sh -c \"trap '' TERM; sleep 60 & trap "
                               "'echo daemon asked; kill -9 \\$!; exit' TERM; echo ready; "
                               "until wait; do :; done\" &"
                               "(trap '' TERM; exec sleep 60) & "
                               "trap 'kill -9 $!; wait; exit 3' TERM; echo ready; wait; wait"),
                         {"lease=60000", "grace=20000", "lost=" + (dir / "lost")}));
  REQUIRE(eventually([&] { return dlock.out() == "ready\nready\n"; }));
  const auto asked = BootClock::now();
  write_file(dir / "lost", "");
  const auto result = dlock.wait(milliseconds(30'000));
  CHECK(result.out == "ready\nready\ndaemon asked\n");
  CHECK(says(result, "lost code=3"));
  CHECK(BootClock::now() - asked < milliseconds(15'000));
}

TEST_CASE("the grace goes on for what is left when the command itself has ended") {
  const TempDir dir;
  auto dlock = Process(supervised(
      shell("(trap '' TERM; sleep 60 & trap 'kill -9 $!; sleep 0.2; echo cleaned up; exit' TERM; "
            "echo ready; until wait; do :; done) &"
            "trap 'exit 0' TERM; echo ready; wait"),
      {"lease=60000", "grace=20000", "lost=" + (dir / "lost")}));
  REQUIRE(eventually([&] { return dlock.out() == "ready\nready\n"; }));
  write_file(dir / "lost", "");
  const auto result = dlock.wait(milliseconds(30'000));
  CHECK(result.out == "ready\nready\ncleaned up\n");
  CHECK(says(result, "lost code=0"));
}

TEST_CASE("a child has the whole grace between TERM and KILL where a lease ends") {
  // On a busy machine, dlock may send TERM late but KILL in time: then the grace is cut short.
  long millis = 0;
  for (int tries = 0; tries < 5 && millis < 950; ++tries) {
    const auto result =
        run(supervised({"perl", "-MTime::HiRes=time,sleep", "-e",
                        "$| = 1; $SIG{TERM} = sub { $t = time }; sleep 0.001 until $t;"
                        "while (1) { printf \"%d\\n\", 1000 * (time - $t); sleep 0.01 }"},
                       {"lease=3000", "grace=1000"}));
    if (!says(result, "in-time=1")) continue;
    const std::string out = result.out.substr(0, result.out.rfind('\n'));
    millis = std::max(millis, std::stol("0" + out.substr(out.rfind('\n') + 1)));
  }
  CHECK(millis >= 950);
}

TEST_CASE("a child that ends with 0 in the grace has lost the lock all the same") {
  // On a busy machine, the child may be late to set its trap or to end, but not in every try.
  CHECK(in_one_of(5, [] {
    const auto result = run(supervised(shell(handles_term), {"lease=6000", "grace=3000"}));
    CHECK(result.exit_code == 79);
    return result.out == "ready\nasked\n" && says(result, "lost code=0 signal=0 error=0 noticed=1");
  }));
}

TEST_CASE("without a grace the child is killed just before the lease ends, not after it") {
  // On a busy machine, it may be late now and then, but not in every try.
  CHECK(in_one_of(5, [] {
    const auto result = run(supervised({"sleep", "60"}, {"lease=2000", "grace=0"}));
    CHECK(says(result, "lost code=-1 signal=9"));
    CHECK(result.duration > milliseconds(1750));
    return says(result, "in-time=1");
  }));
}

TEST_CASE("a grace that begins late, as dlock was held up, is cut short by the end of the lease") {
  // On a busy machine, dlock or the test may be late now and then, but not in every try.
  CHECK(in_one_of(5, [] {
    const auto begun = BootClock::now();
    auto dlock = Process(supervised(shell(stubborn_family), {"lease=6000", "grace=4000"}));
    const auto family_is_there = [&] { return pids(dlock.out()).size() == 3; };
    if (!eventually([&] { return family_is_there() || !dlock.running(); })) return false;
    if (!family_is_there()) return false;
    dlock.signal(SIGSTOP);
    poll_until({}, later(begun, milliseconds(3500)));
    dlock.signal(SIGCONT);
    const auto result = dlock.wait(milliseconds(30'000));
    CHECK(says(result, "lost code=-1 signal=9"));
    check_all_dead(result.out, 3);
    return says(result, "in-time=1");
  }));
}

TEST_CASE("renewals move the moment at which the child must stop") {
  // On a busy machine, a renewal may be late, but not in every try.
  CHECK(in_one_of(5, [] {
    const auto result = run(supervised({"sleep", "1"}, {"lease=300", "grace=50", "renewals=12"}));
    return result.exit_code == 0 && says(result, "exited code=0 signal=0 error=0 noticed=0");
  }));
}

TEST_CASE("a loss that is told stops the child long before the lease ends") {
  const TempDir dir;
  auto dlock = Process(
      supervised(shell(handles_term), {"lease=60000", "grace=10000", "lost=" + (dir / "lost")}));
  REQUIRE(eventually([&] { return dlock.out() == "ready\n"; }));
  write_file(dir / "lost", "");
  const auto result = dlock.wait(milliseconds(30'000));
  CHECK(result.exit_code == 79);
  CHECK(result.out == "ready\nasked\n");
}

TEST_CASE("a child that may run on after a loss ends as it does, and the loss is said once") {
  for (const std::string how : {"lease=200", "lease=60000"}) {
    CAPTURE(how);
    const TempDir dir;
    // It keeps running until the short lease has ended, too.
    const auto script = shell("touch " + (dir / "lost") + "; while [ ! -e " + (dir / "go") +
                              " ]; do sleep 0.01; done; sleep 0.4; exit 5");
    auto dlock = Process(supervised(script, {how, "grace=50", "keep=1", "lost=" + (dir / "lost")}));
    REQUIRE(eventually([&] { return dlock.err() == "loss\n"; }));
    write_file(dir / "go", "");
    const auto result = dlock.wait();
    CHECK(result.exit_code == 5);
    CHECK(result.err.starts_with("loss\nexited code=5 signal=0 error=0 noticed=1"));
  }
}

TEST_CASE("max-hold ends the child, with the chosen signal, by SIGKILL if it must") {
  const auto polite = run(supervised({"sleep", "60"}, {"max-hold=100", "grace=5000", "stop=2"}));
  CHECK(polite.exit_code == 124);
  CHECK(says(polite, "max-hold code=-1 signal=2 error=0 noticed=0"));
  // A busy machine may need longer to start the family.
  Result stubborn;
  for (int ms = 300; ms <= 9600 && pids(stubborn.out).size() < 3; ms *= 2) {
    stubborn =
        run(supervised(shell(stubborn_family), {"max-hold=" + std::to_string(ms), "grace=100"}));
    CHECK(stubborn.exit_code == 124);
  }
  CHECK(says(stubborn, "max-hold code=-1 signal=9"));
  check_all_dead(stubborn.out, 3);
}

namespace {

/// Whether dlock, stopped with its child until after the lease, killed the child before it ran
/// another instruction. False if a busy machine stopped them too late.
bool is_resumed_after_the_lease() {
  // The delay gives the signalled process time to act before dlock goes on.
  const auto words = held_up(
      "kill:delay_exit=200000",
      supervised(shell(std::string("echo $$;") + handles_term), {"lease=4000", "grace=200"}));
  const auto begun = BootClock::now();
  auto dlock = Process(words);
  const auto is_ready = [&] { return dlock.out().ends_with("ready\n"); };
  REQUIRE(eventually([&] { return is_ready() || !dlock.running(); }));
  if (!is_ready()) return false;
  const pid_t child = std::stoi(dlock.out());
  // Stop the child first, so that dlock's SIGCONT does not queue after a SIGCHLD.
  kill(child, SIGSTOP);
  const auto both_are_quiet = [&] {
    return is_in_state('T', child) && has_heard_all(dlock.pid()) && is_in_state('S', dlock.pid());
  };
  REQUIRE(eventually([&] { return both_are_quiet() || !dlock.running(); }));
  dlock.stop();
  if (BootClock::now() - begun > milliseconds(3300)) return false;
  kill(dlock.pid(), SIGTERM);  // it is pending, but the deadline is older
  const Deadline past = later(BootClock::now(), milliseconds(4100));
  REQUIRE(eventually([&] { return BootClock::now() > past; }));
  dlock.signal(SIGCONT);
  const auto result = dlock.wait();
  CHECK(result.exit_code == 79);
  CHECK(says(result, "lost code=-1 signal=9"));
  CHECK(result.out.find("asked") == std::string::npos);
  return true;
}

/// Whether dlock, delayed until the lease was over, killed the child without passing the signal on.
/// False if a busy machine sent the signal too late.
bool is_signalled_and_held_up() {
  // Delays the first check for the child's end, between the deadline and the signal.
  const auto words = held_up("waitid:delay_exit=3000000:when=2",
                             supervised(shell(handles_term), {"lease=3000", "grace=200"}));
  const auto begun = BootClock::now();
  auto dlock = Process(words);
  const auto is_ready = [&] { return dlock.out() == "ready\n"; };
  REQUIRE(eventually([&] { return is_ready() || !dlock.running(); }));
  dlock.signal(SIGTERM);
  if (!is_ready() || BootClock::now() - begun > milliseconds(2700)) return false;
  const auto result = dlock.wait();
  CHECK(result.exit_code == 79);
  CHECK(says(result, "lost code=-1 signal=9"));
  CHECK(result.out == "ready\n");
  return true;
}

/// Whether dlock, stopped until after the lease, kept the exit code of a child that had ended
/// before. False if a busy machine was late.
bool is_woken_late_by_a_child_that_has_ended() {
  const TempDir dir;
  const auto begun = BootClock::now();
  auto dlock = Process(
      supervised(shell("echo $$; while [ ! -e " + (dir / "go") + " ]; do sleep 0.01; done; exit 6"),
                 {"lease=4000", "grace=100"}));
  const auto is_ready = [&] { return dlock.out().ends_with("\n"); };
  REQUIRE(eventually([&] { return is_ready() || !dlock.running(); }));
  if (!is_ready()) return false;
  const pid_t child = std::stoi(dlock.out());
  dlock.stop();
  if (BootClock::now() - begun > milliseconds(3400))
    return false;  // dlock acts 500 ms before its end
  write_file(dir / "go", "");
  const Deadline past = later(BootClock::now(), milliseconds(4100));
  REQUIRE(eventually([&] { return BootClock::now() > past && !is_alive(child); }));
  dlock.signal(SIGCONT);
  const auto result = dlock.wait();
  CHECK(result.exit_code == 6);
  CHECK(says(result, "exited code=6 signal=0 error=0 noticed=1"));
  return true;
}

}  // namespace

TEST_CASE("resumed after the lease, dlock kills the child before it runs another instruction") {
  CHECK(in_one_of(5, is_resumed_after_the_lease));
}

TEST_CASE("held up until the lease is over, dlock kills the child and passes no signal on") {
  CHECK(in_one_of(5, is_signalled_and_held_up));
}

TEST_CASE("a child that had ended before a late wake keeps its exit code") {
  CHECK(in_one_of(5, is_woken_late_by_a_child_that_has_ended));
}

TEST_CASE("a stopped child is waited for, and is killed in time when the lease ends") {
  // On a busy machine, a renewal or dlock may be late now and then, but not in every try.
  CHECK(in_one_of(5, [] {
    const auto result = run(supervised(shell("echo $$; kill -STOP $$; exit 8"),
                                       {"lease=1200", "grace=100", "renewals=2"}));
    CHECK(result.exit_code == 79);
    return says(result, "in-time=1") && result.duration > milliseconds(1300);
  }));
}

TEST_CASE("what dlock had for children before it was executed is not killed") {
  const auto script = std::string("sleep 60 >/dev/null 2>&1 & echo $!; exec ") + DLOCK_SUPERVISED +
                      " max-hold=100 grace=0 -- sleep 60";
  ProcessOptions options;
  auto dlock = Process(shell(script), options);
  const auto result = dlock.wait();
  CHECK(result.exit_code == 124);
  const auto stranger = pids(result.out);
  REQUIRE(stranger.size() == 1);
  CHECK(is_alive(stranger.front()));
  kill(stranger.front(), SIGKILL);
}

}  // namespace dlock::test
