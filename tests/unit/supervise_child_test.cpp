#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <string>
#include <vector>

#include "supervise/child.hpp"
#include "supervise/signals.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/process.hpp"
#include "support/supervised.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

namespace {

/// Prints everything that a process can find out about its start, except its own identity. Runs
/// without a shell where a shell would change the result: dash unblocks every signal.
const std::vector<std::string> self_portraits[] = {
    {"grep", "-E", "^(Sig(Blk|Ign)|Umask|NoNewPrivs|Groups|Cpus_allowed)", "/proc/self/status"},
    {"cat", "/proc/self/limits"},
    shell("nice; pwd; env | sort; for fd in /proc/self/fd/*; do echo \"$fd\"; done")};

void odd_inheritance() {
  signal(SIGHUP, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);
  signal(SIGUSR2, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigaddset(&blocked, SIGPIPE);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  dup2(1, 7);
}

}  // namespace

TEST_CASE("a command is not begun once its time is over, wherever dlock was held up") {
  TempDir dir;
  const auto touch = shell("touch '" + dir.path() + "/began'");
  const std::string too_late = "not-started code=-1 signal=0 error=" + std::to_string(ETIME);
  CHECK(says(run(supervised(touch, {"start-before=1", "waits=20"})), too_late));
  // The gate opens after 50 ms.
  CHECK(
      says(run(supervised(touch, {"start-before=20", "gate=" + dir.path() + "/gate"})), too_late));
  CHECK(access((dir.path() + "/began").c_str(), F_OK) != 0);
  CHECK(says(run(supervised(touch, {"start-before=60000"})), "exited code=0"));
  CHECK(access((dir.path() + "/began").c_str(), F_OK) == 0);
}

TEST_CASE("every exit code of the child is passed through") {
  for (int code = 0; code <= 255; ++code) {
    CAPTURE(code);
    CHECK(run(supervised(shell("exit " + std::to_string(code)))).exit_code == code);
  }
}

TEST_CASE("dlock dies of every signal its child dies of") {
  for (int number = 1; number <= 64; ++number) {
    const bool harmless = number == SIGCHLD || number == SIGCONT || number == SIGURG ||
                          number == SIGWINCH || (number >= SIGSTOP && number <= SIGTTOU);
    if (harmless || number == 32 || number == 33) continue;  // libc uses these two itself
    CAPTURE(number);
    const auto result = run(supervised(shell("kill -" + std::to_string(number) + " $$")));
    CHECK(result.signal == number);
    CHECK(says(result, "signalled code=-1 signal=" + std::to_string(number)));
  }
}

TEST_CASE("a command that cannot be executed is told from one that ends with 127") {
  const TempDir dir;
  write_file(dir / "plain", "text\n");
  const auto error = [](int number) {
    return "not-started code=-1 signal=0 error=" + std::to_string(number);
  };
  CHECK(says(run(supervised({"/nonexistent"})), error(ENOENT)));
  CHECK(says(run(supervised({"no-such-command-on-the-path"})), error(ENOENT)));
  CHECK(says(run(supervised({""})), error(ENOENT)));
  CHECK(says(run(supervised({dir / "plain"})), error(EACCES)));
  CHECK(says(run(supervised({dir.path()})), error(EACCES)));
  CHECK(says(run(supervised(shell("exit 127"))), "exited code=127"));
  CHECK(says(run(supervised({"/nonexistent"}, {"gate=" + (dir / "gate")})), error(ENOENT)));
}

TEST_CASE("a script without an interpreter line is run by sh, as execvp does") {
  const TempDir dir;
  write_file(dir / "script", "exit 42\n");
  chmod((dir / "script").c_str(), 0755);
  CHECK(run(supervised({dir / "script"})).exit_code == 42);
}

TEST_CASE("a command is found along PATH as execvp finds it") {
  const TempDir dir;
  for (const char* const folder : {"forbidden", "script", "here"}) {
    mkdir((dir / folder).c_str(), 0755);
  }
  mkdir((dir / "folder").c_str(), 0755);
  mkdir((dir / "folder/tool").c_str(), 0755);
  write_file(dir / "forbidden/tool", "exit 1\n");
  write_file(dir / "file", "");
  for (const auto& [folder, code] : {std::pair("script", "42"), std::pair("here", "43")}) {
    const std::string tool = dir / (std::string(folder) + "/tool");
    write_file(tool, std::string("exit ") + code + "\n");
    chmod(tool.c_str(), 0755);
  }
  const auto tried = [&](const std::string& path, const std::string& name = "tool") {
    ProcessOptions options;
    options.env["PATH"] = path;
    options.before_exec = [&] { CHECK(chdir((dir / "here").c_str()) == 0); };
    return run(supervised({name}), options);
  };
  const auto error = [](int number) { return "error=" + std::to_string(number) + " "; };
  const std::string forbidden = dir / "forbidden", folder = dir / "folder", file = dir / "file",
                    script = dir / "script", missing = dir / "missing";
  CHECK(says(tried(script), "code=42"));
  CHECK(
      says(tried(missing + ":" + file + ":" + forbidden + ":" + folder + ":" + script), "code=42"));
  CHECK(says(tried(":" + script), "code=43"));
  CHECK(says(tried(missing + ":"), "code=43"));
  CHECK(says(tried(std::string(5000, 'x') + ":" + script), "code=42"));
  CHECK(says(tried(forbidden + ":" + missing), error(EACCES)));
  CHECK(says(tried(folder + ":" + missing), error(EACCES)));
  CHECK(says(tried(missing + ":" + file), error(ENOTDIR)));
  CHECK(says(tried(file + ":" + missing), error(ENOENT)));
  CHECK(says(tried(missing + ":" + script, std::string(256, 'x')), error(ENAMETOOLONG)));
}

TEST_CASE("a raw system call that fails leaves errno alone") {
  if (!raw_syscall_spares_errno) return;
  errno = E2BIG;
  const char* const nowhere = "/nonexistent";
  CHECK(raw_syscall(SYS_execve, reinterpret_cast<long>(nowhere)) == -ENOENT);
  CHECK(raw_syscall(SYS_read, -1, 0, 0) == -EBADF);
  CHECK(errno == E2BIG);
  CHECK(raw_syscall(SYS_getppid) == getppid());
}

TEST_CASE("the child inherits exactly what it would without dlock") {
  for (const bool odd : {false, true}) {
    CAPTURE(odd);
    ProcessOptions options;
    if (odd) options.before_exec = odd_inheritance;
    for (const auto& portrait : self_portraits) {
      const auto direct = run(portrait, options);
      REQUIRE(direct.exit_code == 0);
      CHECK(run(supervised(portrait), options).out == direct.out);
    }
  }
}

TEST_CASE("arguments arrive byte for byte, stdin is the child's") {
  ProcessOptions options;
  options.input = "line\n";
  const auto result = run(supervised({"sh", "-c", "printf '<%s>' \"$@\"; cat", "sh", "", "a b",
                                      "[a,b]", "++", "--", "\xff;\n$x"}),
                          options);
  CHECK(result.out == "<><a b><[a,b]><++><--><\xff;\n$x>line\n");
}

TEST_CASE("variables are added to the environment, or take the place of those there") {
  ProcessOptions options;
  options.env["PROBE"] = "outer";
  const auto script = shell("env | grep -c ^PROBE=; echo \"$PROBE\"");
  CHECK(run(supervised(script, {"env=PROBE=inner=1"}), options).out == "1\ninner=1\n");
  options.env.clear();
  CHECK(run(supervised(script, {"env=PROBE=new"}), options).out == "1\nnew\n");
}

TEST_CASE("the hidden descriptor is closed in the child, its neighbours are not") {
  ProcessOptions options;
  options.before_exec = [] {
    dup2(1, 7);
    dup2(1, 8);
  };
  const auto script = shell("for fd in 7 8; do [ -e /proc/self/fd/$fd ] && echo $fd; done");
  CHECK(run(supervised(script), options).out == "7\n8\n");
  CHECK(run(supervised(script, {"hide=7"}), options).out == "8\n");
}

TEST_CASE("every signal is passed on, however often it comes") {
  auto dlock = Process(supervised(
      shell("for s in HUP INT QUIT TERM USR1 USR2 ALRM WINCH CONT; do trap \"echo $s\" $s; done;"
            "(trap '' HUP INT QUIT TERM USR1 USR2 ALRM; exec sleep 60) & echo ready; while :; do "
            "wait; done")));
  REQUIRE(eventually([&] { return dlock.out() == "ready\n"; }));
  std::string expected = "ready\n";
  const std::pair<int, std::string> signals[] = {
      {SIGHUP, "HUP\n"},     {SIGINT, "INT\n"},   {SIGQUIT, "QUIT\n"}, {SIGTERM, "TERM\n"},
      {SIGTERM, "TERM\n"},   {SIGUSR1, "USR1\n"}, {SIGUSR2, "USR2\n"}, {SIGALRM, "ALRM\n"},
      {SIGWINCH, "WINCH\n"}, {SIGCONT, "CONT\n"}, {SIGTERM, "TERM\n"}};
  for (const auto& [number, name] : signals) {
    kill(dlock.pid(), number);
    expected += name;
    REQUIRE(eventually([&] { return dlock.out().size() >= expected.size(); }));
    CHECK(dlock.out() == expected);
  }
}

TEST_CASE("a command that has moved to another process group gets every signal, and gets it once") {
  const TempDir dir;
  const std::string lost = dir / "lost";
  const std::string script =
      "$| = 1; setpgrp(0, 0) or die; $SIG{USR1} = sub { print \"usr1\\n\" };"
      "$SIG{TERM} = sub { print \"term\\n\"; $ends = 1 }; print \"ready\\n\";"
      "sleep 1 until $ends; sleep 1; exit 7";
  auto dlock = Process(supervised({"perl", "-e", script}, {"lost=" + lost, "grace=20000"}));
  REQUIRE(eventually([&] { return dlock.out() == "ready\n"; }));
  dlock.signal(SIGUSR1);
  REQUIRE(eventually([&] { return dlock.out() == "ready\nusr1\n"; }));
  write_file(lost, "");
  const auto result = dlock.wait();
  CHECK(result.out == "ready\nusr1\nterm\n");
  CHECK(says(result, "lost code=7"));
}

TEST_CASE("without a terminal SIGTSTP stops the child only, and SIGCONT continues it") {
  // Run with job control, as the kernel does not stop a process that no shell could continue.
  const auto words = supervised(shell("echo $PPID $$; exec sleep 60"));
  std::vector<std::string> job{"bash", "-c", "set -m; \"$@\" & wait $!; exit $?", "bash"};
  job.insert(job.end(), words.begin(), words.end());
  auto shell = Process(job);
  REQUIRE(eventually([&] { return shell.out().ends_with("\n"); }));
  std::istringstream pids(shell.out());
  pid_t dlock = 0;
  pid_t command = 0;
  pids >> dlock >> command;
  kill(dlock, SIGTSTP);
  CHECK(eventually([&] { return is_in_state('T', command); }));
  kill(dlock, SIGCONT);
  CHECK(eventually([&] { return is_in_state('S', command); }));
  CHECK(eventually([&] { return is_in_state('S', dlock); }));
  kill(dlock, SIGTERM);
  CHECK(shell.wait().exit_code == 128 + SIGTERM);
}

TEST_CASE("a signal ignored on entry is not heard, one that is not is") {
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    Signals signals;
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGWINCH);
    const bool silent = !signals.take();
    kill(getpid(), SIGTERM);
    const auto term = signals.take();
    _exit(silent && term && term->number == SIGTERM && !term->from_terminal ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("kill -9 of dlock takes the command with it") {
  auto dlock = Process(supervised(shell("echo $$; exec sleep 60")));
  REQUIRE(eventually([&] { return dlock.out().ends_with("\n"); }));
  const pid_t command = std::stoi(dlock.out());
  kill(dlock.pid(), SIGKILL);
  CHECK(eventually([&] { return !is_alive(command); }));
}

TEST_CASE("the command's first instruction waits until the command is recorded") {
  const TempDir dir;
  const auto result = run(supervised(shell("cat " + (dir / "gate")), {"gate=" + (dir / "gate")}));
  CHECK(result.out == "recorded\n");
}

TEST_CASE("the command is in dlock's process group and session, and no leader of one") {
  const std::string parents_and_own =
      "for pid in $PPID $$; do read -r p c s pp group session rest "
      "</proc/$pid/stat; echo $group $session; done; ";
  const auto result = run(supervised(shell(parents_and_own + "exec setsid echo led")));
  std::istringstream lines(result.out);
  std::string dlocks, its, led;
  std::getline(lines, dlocks);
  std::getline(lines, its);
  std::getline(lines, led);
  CHECK_FALSE(dlocks.empty());
  CHECK(its == dlocks);
  CHECK(led == "led");
}

TEST_CASE("a signal to dlock reaches all of the command's that is in its group, parents first") {
  const TempDir dir;
  // The shell gets the signal first, and so does not start its second step when its child ends.
  auto dlock = Process(supervised(
      shell("sh -c 'echo $$ >" + (dir / "first") + "; exec sleep 60'; echo second-step; exit 3")));
  REQUIRE(eventually([&] {
    return access((dir / "first").c_str(), F_OK) == 0 && read_file(dir / "first").ends_with("\n");
  }));
  const pid_t first = std::stoi(read_file(dir / "first"));
  dlock.signal(SIGTERM);
  const auto result = dlock.wait();
  CHECK(says(result, "signalled code=-1 signal=15"));
  CHECK(result.out.empty());
  CHECK(eventually([&] { return !is_alive(first); }));
}

TEST_CASE("what the command leaves behind is reaped while it runs and lives on after it") {
  const TempDir dir;
  auto dlock =
      Process(supervised(shell("i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done;"
                               "(setsid sleep 60 >/dev/null 2>&1 & echo $!); while [ ! -e " +
                               (dir / "go") + " ]; do sleep 0.01; done")));
  // This starts two thousand processes in turn, which takes a while on a busy machine.
  REQUIRE(eventually([&] { return dlock.out().ends_with("\n"); }, milliseconds(200'000)));
  const pid_t daemon = std::stoi(dlock.out());
  const auto number = std::to_string(dlock.pid());
  const auto children = "/proc/" + number + "/task/" + number + "/children";
  const auto count = [&] {
    std::size_t blanks = 0;
    for (const char c : read_file(children)) blanks += c == ' ';
    return blanks;
  };
  CHECK(eventually([&] { return count() == 2; }));  // the command and its daemon
  write_file(dir / "go", "");
  CHECK(dlock.wait().exit_code == 0);
  CHECK(is_alive(daemon));
  kill(daemon, SIGKILL);
}

}  // namespace dlock::test
