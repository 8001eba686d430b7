#include <doctest/doctest.h>
#include <signal.h>

#include "base/process.hpp"
#include "cli/place.hpp"
#include "support/eventually.hpp"
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

TEST_CASE("terminal: in a pipeline with less, less has its keys and nobody is stopped") {
  on_each_engine([](const Place& place) {
    User user(place);
    user.type("$D run -k a -- seq 1000 | TERM=xterm less; echo code-$?");
    REQUIRE(user.shows("23"));
    user.press(" ");
    REQUIRE(user.shows("46"));
    user.press("q");
    CHECK(user.shows("code-0"));
    user.is_back();
    // The same with a command that still writes when less has exited.
    user.type("$D run -k a -- sh -c 'while echo more; do :; done' 2>/dev/null | TERM=xterm less");
    REQUIRE(user.shows("more"));
    user.press("q");
    user.is_back();
    CHECK(eventually([&] { return place.is_free("a"); }));
  });
}

}  // namespace dlock::test
