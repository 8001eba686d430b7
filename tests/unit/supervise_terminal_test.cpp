#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/fd.hpp"
#include "support/desk.hpp"
#include "support/eventually.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

TEST_CASE("the child reads from the terminal, and the shell has it again afterwards") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type("$D -- sh -c 'echo read\"\"y; read x; echo \"<$x>\"'; echo code-$?");
  REQUIRE(desk.shows("ready"));
  desk.type("hello");
  CHECK(desk.shows("<hello>"));
  CHECK(desk.shows("code-0"));
  desk.type("read y; echo \"[$y]\"");
  desk.type("again");
  CHECK(desk.shows("[again]"));
}

TEST_CASE("the child is in the foreground from its first instruction on") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type(
      "$D -- sh -c 'read -r p c s pp group se tty front rest </proc/$$/stat; "
      "[ $group = $front ] && echo in-fro\"\"nt'");
  CHECK(desk.shows("in-front"));
}

TEST_CASE("a script without job control has the terminal again after dlock") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type("sh -c '\"$D\" -- true; echo read\"\"y; read x; echo \"<$x>\"'");
  REQUIRE(desk.shows("ready"));
  desk.type("hello");
  CHECK(desk.shows("<hello>"));
}

TEST_CASE("^C reaches the child exactly once, wherever its stdin and stdout lead") {
  const std::string command = std::string("$D -- sh -c ") + counts_int;
  for (const std::string& line :
       {command, command + " | (trap '' INT QUIT; cat)", "echo | " + command,
        command + " </dev/null", command + " & fg"}) {
    CAPTURE(line);
    Desk desk(DLOCK_SUPERVISED);
    desk.type(line);
    REQUIRE(desk.shows("ready"));
    for (int i = 0; i < 3; ++i) {
      desk.press("\x03");
      REQUIRE(desk.shows("got-int"));
    }
    desk.press("\x1c");
    desk.type("echo end-$((1+1))");
    REQUIRE(desk.shows("end-2"));
    CHECK(desk.count("got-int\r") == 3);
  }
}

TEST_CASE("in a pipeline, where ^C has reached the child already, it is not passed on again") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type(
      "$D -- sh -c 'trap \"\" INT; sleep 60 & trap \"echo got-int\" INT; trap \"kill $!; echo "
      "got-te\"\"rm; "
      "exit\" "
      "TERM; echo dlock=$PPID.; until wait; do :; done' | (trap '' INT; cat)");
  REQUIRE(desk.shows("dlock="));
  const pid_t dlock = desk.number();
  // Two signals that come close together are one to the child, so dlock is held back a while.
  kill(dlock, SIGSTOP);
  desk.press("\x03");
  REQUIRE(desk.shows("got-int"));
  kill(dlock, SIGTERM);
  kill(dlock, SIGCONT);
  REQUIRE(desk.shows("got-term"));
  CHECK(desk.count("got-int") == 1);
}

TEST_CASE("^C that kills the child stops a loop of the shell") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type("for i in 1 2 3; do $D -- sh -c 'echo read\"\"y; exec sleep 60'; done; echo over");
  REQUIRE(desk.shows("ready"));
  desk.press("\x03");
  desk.type("echo end-$((1+1))");
  CHECK(desk.shows("end-2"));
  CHECK(desk.count("ready") == 1);
}

TEST_CASE("^Z stops the job after the lease was renewed, fg and bg continue it") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type("$D -- sh -c 'echo read\"\"y; read x; echo \"<$x>\"; exit 4'; echo code-$?");
  REQUIRE(desk.shows("ready"));
  desk.press("\x1a");
  REQUIRE(desk.shows("stopping"));
  REQUIRE(desk.shows("Stopped"));
  REQUIRE(desk.shows("code-148"));
  desk.type("bg; sleep 0.2; jobs");  // it reads, so it is stopped again, and the job with it
  REQUIRE(desk.shows("stopping"));
  REQUIRE(desk.shows("Stopped"));
  desk.type("fg; echo fg-code-$?");
  REQUIRE(desk.in_front("sh"));
  desk.type("hello");
  CHECK(desk.shows("<hello>"));
  CHECK(desk.shows("fg-code-4"));
}

TEST_CASE("a job continued after its lease is killed before it runs another instruction") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type(
      "$D lease=700 grace=200 -- sh -c 'trap \"printf as%s ked\" TERM CONT; echo read\"\"y; "
      "read x'");
  REQUIRE(desk.shows("ready"));
  desk.press("\x1a");
  REQUIRE(desk.shows("Stopped"));
  desk.type("sleep 0.8; fg; echo fg-code-$?");
  CHECK(desk.shows("lost code=-1 signal=9"));
  CHECK(desk.shows("fg-code-79"));
  CHECK(desk.count("asked") == 0);
}

TEST_CASE("wait-tree: ^Z, fg and ^C reach what is left of the job") {
  Desk desk(DLOCK_SUPERVISED);
  // Not by the shell's `&`, which would have it ignore INT.
  desk.type(
      "$D wait-tree=1 -- sh -c 'setsid -f sh -c \"trap \\\"\\\" INT; sleep 60 & trap \\\"echo "
      "got-cont\\\" CONT;"
      "trap \\\"echo got-int; kill \\$!; exit\\\" INT; echo read\\\"\\\"y; until wait; do :; "
      "done\";"
      "exit 4'; echo code-$?");
  REQUIRE(desk.shows("ready"));
  REQUIRE(desk.in_front("supervised"));
  desk.press("\x1a");
  REQUIRE(desk.shows("stopping"));
  REQUIRE(desk.shows("Stopped"));
  REQUIRE(desk.shows("code-148"));
  desk.type("fg; echo fg-code-$?");
  // Not only shows(): the shell has repeated the command, and with it these words.
  REQUIRE(eventually([&] { return desk.count("got-cont\r") == 1; }));
  desk.press("\x03");
  CHECK(desk.shows("fg-code-4"));
  CHECK(desk.count("got-int\r") == 1);
}

TEST_CASE("in a pipeline nobody's foreground is taken") {
  Desk desk(DLOCK_SUPERVISED);
  // The reader at the end reads keys from the terminal, as less does.
  desk.type(
      "$D -- sh -c 'echo data; sleep 0.2' | (cat; echo read\"\"y; read x </dev/tty; "
      "echo \"<$x>\"); echo code-$?");
  REQUIRE(desk.shows("ready"));
  desk.type("key");
  CHECK(desk.shows("<key>"));
  CHECK(desk.shows("code-0"));
}

TEST_CASE("a child fed by a pipe gets the terminal when it reads from it") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type("echo data | $D -- sh -c 'cat; read x </dev/tty; echo \"<$x>\"'; echo code-$?");
  REQUIRE(desk.shows("data"));
  desk.type("key");
  CHECK(desk.shows("<key>"));
  CHECK(desk.shows("code-0"));
}

TEST_CASE("a job in the background leaves the terminal alone until it is brought forward") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type("$D -- sh -c 'echo read\"\"y; read x; echo \"<$x>\"' & echo bg-$((1+1))");
  REQUIRE(desk.shows("bg-2"));
  REQUIRE(desk.shows("stopping"));
  // A shell that does not know yet that a job has stopped does not continue it.
  desk.type("wait %1; echo mine-$((1+1))");
  REQUIRE(desk.shows("mine-2"));
  desk.type("fg");
  REQUIRE(desk.in_front("sh"));
  desk.type("hello");
  CHECK(desk.shows("<hello>"));
}

TEST_CASE("a job that is brought forward while it is about to stop for the terminal goes on") {
  const TempDir directory;
  const std::string file = directory / "stop";
  Desk desk(DLOCK_SUPERVISED);
  desk.type("$D stops-with=" + file + " -- sh -c 'read x; echo \"<$x>\"' &");
  REQUIRE(desk.shows("stopping"));
  desk.type("fg");
  REQUIRE(desk.in_front("supervised"));
  std::ofstream(file).close();
  REQUIRE(desk.in_front("sh"));
  desk.type("hello");
  CHECK(desk.shows("<hello>"));
}

TEST_CASE("a shell below dlock has job control, and sees the window change") {
  Desk desk(DLOCK_SUPERVISED);
  desk.type("$D -- bash --norc --noprofile --noediting -i");
  desk.type("trap 'echo width-$(stty size)' WINCH; echo inner-$((1+1))");
  REQUIRE(desk.shows("inner-2"));
  desk.type("sleep 60");
  REQUIRE(desk.in_front("sleep"));
  desk.press("\x1a");
  REQUIRE(desk.shows("Stopped"));
  desk.resize(123);
  desk.type("kill -KILL %1; wait");
  CHECK(desk.shows("width-24 123"));
  // The trap may have ended the first wait, and the job may seem stopped for a moment yet: then the
  // first exit is forbidden.
  desk.type("wait; exit 3; exit 3");
  CHECK(desk.shows("exited code=3"));
  desk.type("echo outer-$((1+1))");
  CHECK(desk.shows("outer-2"));
}

TEST_CASE("a child of a session leader, whom nobody could continue, survives ^Z") {
  int master = -1;
  const pid_t dlock = forkpty(&master, nullptr, nullptr, nullptr);
  if (dlock == 0) {
    execl(DLOCK_SUPERVISED, "supervised", "--", "sh", "-c", "read x; echo \"<$x>\"", nullptr);
    _exit(127);
  }
  const Fd terminal(master);
  fcntl(master, F_SETFL, O_NONBLOCK);
  std::string screen;
  const auto shows = [&](const std::string& text) {
    return eventually(
        [&] {
          char block[512];
          const ssize_t got = read(terminal.get(), block, sizeof block);
          if (got > 0) screen.append(block, static_cast<std::size_t>(got));
          return screen.find(text) != std::string::npos;
        },
        milliseconds(5000));
  };
  REQUIRE(eventually([&] { return tcgetpgrp(master) != dlock && tcgetpgrp(master) > 0; }));
  CHECK(write(master, "\x1a", 1) == 1);
  CHECK(shows("stopping"));
  CHECK(write(master, "hello\n", 6) == 6);
  if (!shows("<hello>")) kill(dlock, SIGKILL);
  int status = -1;
  waitpid(dlock, &status, 0);
  CHECK(status == 0);
}

}  // namespace dlock::test
