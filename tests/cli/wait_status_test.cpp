#include <doctest/doctest.h>
#include <signal.h>

#include <list>

#include "cli/live_support.hpp"
#include "output/screen.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
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

TEST_CASE("waiting line: fits the terminal, also one without a size") {
  const Place place(Engine::local);
  const auto holder = place.hold("\u591c\u9593", {"--label", std::string(200, 'l')});
  std::list<Watcher> users;
  for (const int columns : {0, 40, 200}) {
    users.emplace_back(place).resize(static_cast<unsigned short>(columns));
    users.back().type("$D run -k \u591c\u9593 -w 3.5 -- true; echo code-$?");
  }
  for (const std::size_t columns : {80U, 40U, 200U}) {
    CAPTURE(columns);
    Watcher& user = users.front();
    REQUIRE(user.shows("code-75"));
    const auto told = user.screen().find("s for \u591c\u9593");
    REQUIRE(told != std::string::npos);
    const auto drawn = user.screen().rfind(wipe + "dlock: waiting ", told);
    REQUIRE(drawn != std::string::npos);
    const auto from = drawn + wipe.size();
    const std::string line = user.screen().substr(from, user.screen().find('\r', from) - from);
    CHECK(display_width(line) <= columns - 3);
    CHECK(holds(line, columns == 40 ? "/" : "@"));
    // The label or the name is cut; at 80 columns that depends on the length of the host's name.
    if (columns != 80) CHECK(line.ends_with("\u2026"));
    users.pop_front();
  }
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
