#include <doctest/doctest.h>
#include <signal.h>

#include <list>

#include "base/process.hpp"
#include "cli/live_support.hpp"
#include "cli/place.hpp"
#include "output/screen.hpp"
#include "support/files.hpp"
#include "support/shell_terminal.hpp"

namespace dlock::test {
namespace {

/// A user at a terminal, in the test's directory, with the locks of `place`.
class User : public ShellTerminal {
 public:
  explicit User(const Place& place)
      : ShellTerminal(dlock_path(),
                      {{"DLOCK_SERVER", place.url()}, {"DLOCK_CONFIG", "/dev/null"}}) {
    resize(80);
    type("cd " + place.dir().path() + "; echo here-$((1+1))");
    REQUIRE(shows("here-2"));
  }

  /// Checks that the shell answers, has its terminal, and has no stopped job.
  void is_back() {
    type("jobs; echo back-$((1+1))");
    CHECK(shows("back-2"));
    CHECK(count("Stopped") == 0);
  }
};

}  // namespace

TEST_CASE("terminal: ^C that ends the command ends the script around it, under run and guard") {
  const Place place(Engine::local);
  for (const std::string shell : {"bash", "sh"}) {
    for (const std::string how :
         {"run -k a", "run --wait-tree -k a", "guard --state seen --fence 1"}) {
      CAPTURE(shell);
      CAPTURE(how);
      User user(place);
      user.type(shell + " -c '$D " + how +
                " -- sh -c \"echo read\\\"\\\"y; exec sleep 60\"; echo went\"\"-on'");
      REQUIRE(user.shows("ready"));
      user.press("\x03");
      user.type("echo code-$?");
      CHECK(user.shows("code-130"));
      CHECK(user.count("went-on") == 0);
      CHECK(place.is_free("a"));
    }
  }
}

TEST_CASE("terminal: an INT that was sent to dlock ends the command, and the script goes on") {
  const Place place(Engine::local);
  for (const std::string how : {"run -k a", "run -k a --grace 0", "guard --state seen --fence 1"}) {
    CAPTURE(how);
    User user(place);
    user.type("bash -c '$D " + how +
              " -- sh -c \"echo dlock=\\$PPID.; exec sleep 60\"; echo went-$?'");
    REQUIRE(user.shows("dlock="));
    kill(user.number(), SIGINT);
    CHECK(user.shows("went-130"));
    user.is_back();
  }
}

TEST_CASE("terminal: a TERM ends what is left of a tree, also what was stopped") {
  const Place place(Engine::local);
  User user(place);
  user.type(
      "$D run --wait-tree -k a -c 'sleep 60 & kill -STOP $!; "
      "echo stop\"\"ped=$!.; echo dlo\"\"ck=$PPID.; echo comm\"\"and=$$.; exit 0'");
  REQUIRE(user.shows("stopped="));
  const auto stopped = user.number();
  REQUIRE(user.shows("dlock="));
  const auto dlock = user.number();
  REQUIRE(user.shows("command="));
  const auto command = user.number();
  REQUIRE(eventually([&] { return is_in_state('Z', command) && is_in_state('T', stopped); }));
  kill(dlock, SIGTERM);
  user.type("echo went-$((1+1))");
  CHECK(user.shows("went-2"));
  user.is_back();
  CHECK(place.is_free("a"));
}

TEST_CASE("terminal: ^C while waiting for the lock leaves the queue, 130") {
  on_each_engine([](const Place& place) {
    const Process holder = place.hold("a");
    User user(place);
    user.type("$D run -k a -- true");
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    user.press("\x03");
    user.type("echo code-$?");
    CHECK(user.shows("code-130"));
    CHECK(place.waiters("a") == 0);
  });
}

TEST_CASE(
    "terminal: ^Z stops the job, which keeps its lock while the lease lasts, and fg goes on") {
  on_each_engine([](const Place& place) {
    User user(place);
    user.type("$D run -k a -- sh -c 'echo read\"\"y; read x; echo \"<$x>\"'; echo code-$?");
    REQUIRE(user.shows("ready"));
    user.press("\x1a");
    CHECK(user.shows(place.is_local() ? "dlock: stopped: a stays held until COMMAND has ended\r\n"
                                      : "dlock: stopped: nobody renews a meanwhile; unless "));
    REQUIRE(user.shows("Stopped"));
    CHECK(user.shows("code-148"));
    CHECK(!place.is_free("a"));
    user.type("fg; echo code-$?");
    REQUIRE(user.in_front("dlock"));
    user.type("hello");
    CHECK(user.shows("<hello>"));
    CHECK(user.shows("code-0"));
    CHECK(place.is_free("a"));
  });
}

namespace {

const std::string wipe = "\r\x1b[J";

TEST_CASE("waiting line: shows at a terminal the holder, the place and the time, and is wiped") {
  on_each_engine([](const Place& place) {
    auto holder = place.hold("nightly");
    auto other = place.start({"run", "-q", "-k", "nightly", "--", "sleep", "60"});
    REQUIRE(eventually([&] { return place.waiters("nightly") == 1; }));
    auto third = place.start({"run", "-q", "-k", "nightly", "--", "true"});
    REQUIRE(eventually([&] { return place.waiters("nightly") == 2; }));
    Watcher user(place);
    user.resize(140);  // room for the process of the command
    user.type("$D run -k nightly -- echo ran-inside; echo code-$?");
    REQUIRE(user.shows(wipe + "dlock: waiting "));
    REQUIRE(user.shows("for nightly, place 3 of 3: "));
    // After a second; on a busy machine maybe after two.
    REQUIRE(user.shows("s for nightly, place 3 of 3: "));
    CHECK(user.shows(" pid " + std::to_string(holder.pid()) + " ("));
    REQUIRE(user.shows(wipe + "dlock: waiting "));
    // A waiter gets no message when waiters before it leave.
    third.signal(SIGTERM);
    REQUIRE(user.shows("place 2 of 2: "));
    holder.signal(SIGTERM);
    REQUIRE(user.shows("place 1 of 1: "));
    CHECK(user.shows(" pid " + std::to_string(other.pid()) + " ("));
    other.signal(SIGTERM);
    REQUIRE(user.shows(wipe + "dlock: nightly acquired after "));
    REQUIRE(user.shows("ran-inside\r\ncode-0"));
    CHECK(user.count("dlock: nightly acquired") == 1);
    CHECK(user.count("is held by") == 0);
  });
}

TEST_CASE("waiting line: wiped at the end of the time, by ^C and by ^Z, and drawn again by fg") {
  const Place place(Engine::local);
  const auto holder = place.hold("a");
  Watcher timed(place);
  timed.type("$D run -k a -w 3.5 -- true; echo code-$?");
  Watcher user(place);
  user.type("$D run -k a -- true");
  REQUIRE(user.shows("s for a, "));
  user.press("\x1a");
  REQUIRE(user.shows(wipe));
  CHECK(user.shows("dlock: a: stopped, and left the queue: "));
  REQUIRE(user.shows("Stopped"));
  user.type("fg");
  REQUIRE(user.shows("s for a, "));
  user.press("\x03");
  REQUIRE(user.shows(wipe));
  user.type("echo code-$?");
  CHECK(user.shows("code-130"));
  REQUIRE(timed.shows("s for a, "));
  CHECK(timed.shows(wipe + "dlock: not acquired within "));
  CHECK(timed.shows("code-75"));
}

TEST_CASE("waiting line: none for -q, -v, a job in the background, a log, or without TERM") {
  const Place place(Engine::local);
  const auto holder = place.hold("a");
  const std::string waits = "$D run -k a -w 3.5 -- true";
  std::list<Watcher> users;
  const auto silent = [&](const std::string& command, const std::string& term = "xterm") {
    users.emplace_back(place, std::map<std::string, std::string>{{"TERM", term}});
    users.back().type(command + "; echo code-$?");
  };
  silent("$D run -q -k a -w 3.5 -- true");
  silent("$D run -v -k a -w 3.5 -- true");
  silent(waits, "dumb");
  silent(waits, "");
  silent("(unset TERM; " + waits + ")");
  silent(waits + " 2>log");
  silent("stty tostop; " + waits + " & wait $!");
  for (Watcher& user : users) {
    REQUIRE(user.shows("code-75"));
    CHECK(user.count("\x1b[") == 0);
    CHECK(user.count("waiting 1s") == 0);
    CHECK(user.count("waiting for") == 0);
    CHECK(user.count("Stopped") == 0);
  }
  CHECK(users.back().count("dlock: waiting: a is held by") == 1);
  const std::string log = read_file(place.dir() / "log");
  CAPTURE(log);
  CHECK(count_lines(log) == 2);
  CHECK(log.starts_with("dlock: waiting: a is held by "));
  CHECK(holds(log, "\ndlock: not acquired within "));
}

TEST_CASE("waiting line: says when the server does not answer, and what is said of it is whole") {
  const Place place(Engine::redis);
  const auto holder = place.hold("a");
  Watcher user(place);
  user.type("$D run -k a -- true");
  REQUIRE(user.shows("s for a, "));
  place.server().kill_hard();
  REQUIRE(user.shows("; still waiting, trying again\r\n"));
  REQUIRE(user.shows("for a: the server does not answer"));
  place.server().restart();
  REQUIRE(user.shows(wipe + "dlock: a: the server answers again after "));
}

}  // namespace

}  // namespace dlock::test
