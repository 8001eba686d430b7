#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/fd.hpp"
#include "base/wait.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"
#include "support/shell_terminal.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

TEST_CASE("the child reads from the terminal, and the shell has it again afterwards") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("$D -- sh -c 'echo read\"\"y; read x; echo \"<$x>\"'; echo code-$?");
  REQUIRE(terminal.shows("ready"));
  terminal.type("hello");
  CHECK(terminal.shows("<hello>"));
  CHECK(terminal.shows("code-0"));
  terminal.type("read y; echo \"[$y]\"");
  terminal.type("again");
  CHECK(terminal.shows("[again]"));
}

TEST_CASE("the child is in the foreground from its first instruction on") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type(
      "$D -- sh -c 'read -r p c s pp group se tty front rest </proc/$$/stat; "
      "[ $group = $front ] && echo in-fro\"\"nt'");
  CHECK(terminal.shows("in-front"));
}

TEST_CASE("a script without job control has the terminal again after dlock") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("sh -c '\"$D\" -- true; echo read\"\"y; read x; echo \"<$x>\"'");
  REQUIRE(terminal.shows("ready"));
  terminal.type("hello");
  CHECK(terminal.shows("<hello>"));
}

TEST_CASE("^C reaches the child exactly once, wherever its stdin and stdout lead") {
  const std::string command = std::string("$D -- sh -c ") + counts_int;
  // Not `echo | dlock`: on a busy machine, an interactive bash 5.2 takes the terminal back from
  // such a pipeline while its last command, whatever it is, still runs.
  for (const std::string& line :
       {command, command + " | (trap '' INT QUIT; cat)", "(:; " + command + " </dev/null; :)",
        command + " </dev/null", command + " & fg"}) {
    CAPTURE(line);
    ShellTerminal terminal(DLOCK_SUPERVISED);
    terminal.type(line);
    REQUIRE(terminal.shows("ready"));
    for (int i = 0; i < 3; ++i) {
      terminal.press("\x03");
      REQUIRE(terminal.shows("got-int"));
    }
    terminal.press("\x1c");
    terminal.type("echo end-$((1+1))");
    REQUIRE(terminal.shows("end-2"));
    // At least three were seen above; ^\ may overtake the end of a line.
    CHECK(terminal.count("got-int\r") <= 3);
  }
}

TEST_CASE("in a pipeline, where ^C has reached the child already, it is not passed on again") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type(
      "$D -- sh -c 'trap \"\" INT; sleep 60 & trap \"echo got-int\" INT; trap \"kill $!; echo "
      "got-te\"\"rm; "
      "exit\" "
      "TERM; echo dlock=$PPID.; until wait; do :; done' | (trap '' INT; cat)");
  REQUIRE(terminal.shows("dlock="));
  const pid_t dlock = terminal.number();
  // Two signals in quick succession are one to the child, so dlock is held back for a while.
  kill(dlock, SIGSTOP);
  terminal.press("\x03");
  REQUIRE(terminal.shows("got-int"));
  kill(dlock, SIGTERM);
  kill(dlock, SIGCONT);
  REQUIRE(terminal.shows("got-term"));
  CHECK(terminal.count("got-int") == 1);
}

TEST_CASE("^C that kills the child stops a loop of the shell") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("for i in 1 2 3; do $D -- sh -c 'echo read\"\"y; exec sleep 60'; done; echo over");
  REQUIRE(terminal.shows("ready"));
  terminal.press("\x03");
  terminal.type("echo end-$((1+1))");
  CHECK(terminal.shows("end-2"));
  CHECK(terminal.count("ready") == 1);
}

TEST_CASE("^Z stops the job after the lease was renewed, fg and bg continue it") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("$D -- sh -c 'echo read\"\"y; read x; echo \"<$x>\"; exit 4'; echo code-$?");
  REQUIRE(terminal.shows("ready"));
  terminal.press("\x1a");
  REQUIRE(terminal.shows("stopping"));
  REQUIRE(terminal.shows("Stopped"));
  REQUIRE(terminal.shows("code-148"));
  terminal.type("bg; wait %1; jobs");  // it reads, so it and its job are stopped again
  REQUIRE(terminal.shows("stopping"));
  REQUIRE(terminal.shows("Stopped"));
  terminal.type("fg; echo fg-code-$?");
  REQUIRE(terminal.in_front("supervised"));
  terminal.type("hello");
  CHECK(terminal.shows("<hello>"));
  CHECK(terminal.shows("fg-code-4"));
}

TEST_CASE("a job continued after its lease is killed at once, without a grace") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type(
      "$D lease=12000 grace=200 -- sh -c 'trap \"printf as%s ked\" TERM; echo read\"\"y; "
      "read x'");
  REQUIRE(terminal.shows("ready"));
  terminal.press("\x1a");
  REQUIRE(terminal.shows("Stopped"));
  // Not a sleep of the shell, which would be another job that can be stopped.
  poll_until({}, later(BootClock::now(), milliseconds(12'100)));
  terminal.type("fg; echo fg-code-$?");
  CHECK(terminal.shows("lost code=-1 signal=9"));
  CHECK(terminal.shows("fg-code-79"));
  CHECK(terminal.count("asked") == 0);
}

TEST_CASE("a job whose child has ended while dlock was stopped leaves the terminal to the shell") {
  const TempDir directory;
  const std::string go = directory / "go";
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("$D -- sh -c 'echo dlock=$PPID.; echo child=$$.; until [ -e " + go +
                " ]; do sleep 0.02; done'");
  REQUIRE(terminal.shows("dlock="));
  const pid_t dlock = terminal.number();
  REQUIRE(terminal.shows("child="));
  const pid_t child = terminal.number();
  kill(dlock, SIGSTOP);
  REQUIRE(terminal.shows("Stopped"));
  std::ofstream(go).close();
  REQUIRE(eventually([&] { return is_in_state('Z', child); }));
  terminal.type("bg; wait; echo over-$((1+1))");
  REQUIRE(terminal.shows("over-2"));
  // Otherwise the shell would get a read error, and exit.
  terminal.type("echo mine-$((1+1))");
  CHECK(terminal.shows("mine-2"));
}

/// A line of a script that outlives the child: until the child is a zombie, the keys are for it.
const char* const awaits_child_end = "until grep -q '^State:.Z' /proc/$CHILD/status; do :; done\n";

TEST_CASE("wait-tree: ^Z, fg and ^C reach what is left of the job") {
  const TempDir dir;
  std::ofstream(dir / "rest") << "trap '' INT; sleep 60 & trap 'echo got-cont' CONT\n"
                                 "trap 'echo got-int; kill $!; exit' INT\n"
                              << awaits_child_end << "echo ready; until wait; do :; done\n";
  ShellTerminal terminal(DLOCK_SUPERVISED);
  // Not with the shell's `&`, which would make it ignore INT.
  terminal.type("$D wait-tree=1 -- sh -c 'CHILD=$$ setsid -f sh " + (dir / "rest") +
                "; exit 4'; echo code-$?");
  REQUIRE(terminal.shows("ready"));
  REQUIRE(terminal.in_front("supervised"));
  terminal.press("\x1a");
  REQUIRE(terminal.shows("stopping"));
  REQUIRE(terminal.shows("Stopped"));
  REQUIRE(terminal.shows("code-148"));
  terminal.type("fg; echo fg-code-$?");
  // shows() is not enough: the shell has echoed the command, which contains these words.
  REQUIRE(eventually([&] { return terminal.count("got-cont\r") == 1; }));
  terminal.press("\x03");
  CHECK(terminal.shows("fg-code-4"));
  CHECK(terminal.count("got-int\r") == 1);
}

TEST_CASE(
    "in a pipeline a stop ends the child and all it has started, and nobody else of the job") {
  const TempDir dir;
  // The reader sees the end of its input when all of these processes have gone. Until the child
  // runs sleep, it is a shell, which may lose a signal while it resets the inherited traps.
  const std::string rest =
      "; sleep 60 & until grep -q sleep /proc/$!/comm; do :; done; : >lost; "
      "while :; do wait; done' | (cat; echo o\"\"ver); "
      "echo code-${PIPESTATUS[0]}";
  const auto type = [&](ShellTerminal& terminal, const std::string& terms,
                        const std::string& trap) {
    terminal.type("cd " + dir.path() + "; rm -f lost; $D lost=lost " + terms + " -- sh -c 'trap " +
                  trap + " TERM" + rest);
  };
  ShellTerminal terminal(DLOCK_SUPERVISED);
  type(terminal, "grace=60000", "\"echo got-te\"\"rm; exit\"");
  REQUIRE(terminal.shows("got-term"));
  CHECK(terminal.shows("over"));
  CHECK(terminal.shows("code-79"));
  type(terminal, "grace=100", "\"\"");
  CHECK(terminal.shows("over"));
  CHECK(terminal.shows("code-79"));
}

TEST_CASE("wait-tree: in a pipeline ^C reaches what is left of the job exactly once") {
  const TempDir dir;
  std::ofstream(dir / "rest") << awaits_child_end << "exec sh -c " << counts_int;
  ShellTerminal terminal(DLOCK_SUPERVISED);
  // A shell makes a command with `&` ignore INT.
  terminal.type("$D wait-tree=1 -- sh -c 'CHILD=$$ env --default-signal=INT,QUIT sh " +
                (dir / "rest") +
                " & exit 4' | (trap '' INT QUIT; cat); echo code-${PIPESTATUS[0]}");
  REQUIRE(terminal.shows("ready"));
  for (int i = 0; i < 3; ++i) {
    terminal.press("\x03");
    REQUIRE(terminal.shows("got-int"));
  }
  terminal.press("\x1c");
  CHECK(terminal.shows("code-4"));
  CHECK(terminal.count("got-int\r") <= 3);
}

TEST_CASE("in a pipeline nobody's foreground is taken") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  // The last command reads keys from the terminal, as less does.
  terminal.type(
      "$D -- sh -c 'echo data; sleep 0.2' | (cat; echo read\"\"y; read x </dev/tty; "
      "echo \"<$x>\"); echo code-$?");
  REQUIRE(terminal.shows("ready"));
  terminal.type("key");
  CHECK(terminal.shows("<key>"));
  CHECK(terminal.shows("code-0"));
}

TEST_CASE("a child fed by a pipe gets the terminal when it reads from it") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("echo data | $D -- sh -c 'cat; read x </dev/tty; echo \"<$x>\"'; echo code-$?");
  REQUIRE(terminal.shows("data"));
  terminal.type("key");
  CHECK(terminal.shows("<key>"));
  CHECK(terminal.shows("code-0"));
}

TEST_CASE("a job in the background leaves the terminal alone until it is brought forward") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("$D -- sh -c 'echo read\"\"y; read x; echo \"<$x>\"' & echo bg-$((1+1))");
  REQUIRE(terminal.shows("bg-2"));
  REQUIRE(terminal.shows("stopping"));
  // A shell does not continue a job before it has noticed that it stopped.
  terminal.type("wait %1; echo mine-$((1+1))");
  REQUIRE(terminal.shows("mine-2"));
  terminal.type("fg");
  REQUIRE(terminal.in_front("supervised"));
  terminal.type("hello");
  CHECK(terminal.shows("<hello>"));
}

TEST_CASE("a job that is brought forward while it is about to stop for the terminal goes on") {
  const TempDir directory;
  const std::string file = directory / "stop";
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("$D stops-with=" + file + " -- sh -c 'read x; echo \"<$x>\"' &");
  REQUIRE(terminal.shows("stopping"));
  terminal.type("fg");
  REQUIRE(terminal.in_front("supervised"));
  std::ofstream(file).close();
  terminal.type("hello");
  CHECK(terminal.shows("<hello>"));
}

TEST_CASE("a job without a shell that wants to read from the terminal ends, as without dlock") {
  const TempDir directory;
  const std::string go = directory / "go";
  ShellTerminal terminal(DLOCK_SUPERVISED);
  // A process left behind by the inner shell has no job, once the outer shell has the terminal
  // again.
  terminal.type("sh -c '\"$D\" -- sh -c \"until [ -e " + go +
                " ]; do sleep 0.01; done; read x </dev/tty || echo refu\"\"sed\" &'");
  terminal.type("echo shell-$((1+1))");
  REQUIRE(terminal.shows("shell-2"));
  std::ofstream(go).close();
  CHECK(terminal.shows("refused"));
}

TEST_CASE("a job in the background that is stopped leaves the modes of the terminal alone") {
  const TempDir directory;
  const std::string lost = directory / "lost", done = directory / "done";
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("$D lost=" + lost + " -- sh -c 'echo read\"\"y; exec sleep 60'");
  REQUIRE(terminal.shows("ready"));
  terminal.press("\x1a");
  REQUIRE(terminal.shows("Stopped"));
  terminal.type("bg; sh -c 'stty -icanon; echo raw-$((1+1)); until [ -e " + done +
                " ]; do sleep 0.02; done; stty -a; echo told-$((1+1))'");
  REQUIRE(terminal.shows("raw-2"));
  std::ofstream(lost).close();
  REQUIRE(terminal.shows("lost code=-1"));
  std::ofstream(done).close();
  CHECK(terminal.shows("-icanon"));
  CHECK(terminal.shows("told-2"));
}

TEST_CASE("a shell below dlock has job control, and sees the window change") {
  ShellTerminal terminal(DLOCK_SUPERVISED);
  terminal.type("$D -- bash --norc --noprofile --noediting -i");
  terminal.type("trap 'echo width-$(stty size)' WINCH; echo inner-$((1+1))");
  REQUIRE(terminal.shows("inner-2"));
  terminal.type("sleep 60");
  REQUIRE(terminal.in_front("sleep"));
  terminal.press("\x1a");
  REQUIRE(terminal.shows("Stopped"));
  terminal.resize(123);
  terminal.type("kill -KILL %1; wait");
  CHECK(terminal.shows("width-24 123"));
  // The trap may have ended the first wait, and the job may still count as stopped for a moment:
  // then the shell rejects the first exit.
  terminal.type("wait; exit 3; exit 3");
  CHECK(terminal.shows("exited code=3"));
  terminal.type("echo outer-$((1+1))");
  CHECK(terminal.shows("outer-2"));
}

TEST_CASE("a child of a session leader, whom nobody could continue, survives ^Z") {
  int master = -1;
  const pid_t dlock = forkpty(&master, nullptr, nullptr, nullptr);
  if (dlock == 0) {
    execl(DLOCK_SUPERVISED, "supervised", "--", "sh", "-c", "echo ready; read x; echo \"<$x>\"",
          nullptr);
    _exit(127);
  }
  const Fd terminal(master);
  fcntl(master, F_SETFL, O_NONBLOCK);
  std::string screen;
  const auto shows = [&](const std::string& text) {
    return eventually([&] {
      char block[512];
      const ssize_t got = read(terminal.get(), block, sizeof block);
      if (got > 0) screen.append(block, static_cast<std::size_t>(got));
      return screen.find(text) != std::string::npos;
    });
  };
  REQUIRE(shows("ready"));
  CHECK(write(master, "\x1a", 1) == 1);
  CHECK(write(master, "hello\n", 6) == 6);
  if (!shows("<hello>")) kill(dlock, SIGKILL);
  int status = -1;
  waitpid(dlock, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a terminal that goes away ends the child of a session leader that shares its group") {
  const TempDir directory;
  const std::string ready = directory / "ready", told = directory / "told";
  int master = -1;
  const pid_t dlock = forkpty(&master, nullptr, nullptr, nullptr);
  if (dlock == 0) {
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    const std::string script =
        "trap 'echo >" + told + "; exit' HUP; echo >" + ready + "; while :; do sleep 0.02; done";
    execl(DLOCK_SUPERVISED, "supervised", "--", "sh", "-c", script.c_str(), nullptr);
    _exit(127);
  }
  Fd terminal(master);
  REQUIRE(eventually([&] { return access(ready.c_str(), F_OK) == 0; }));
  terminal.reset();
  const bool heard = eventually([&] { return access(told.c_str(), F_OK) == 0; });
  CHECK(heard);
  if (!heard) kill(dlock, SIGTERM);
  waitpid(dlock, nullptr, 0);
}

}  // namespace dlock::test
