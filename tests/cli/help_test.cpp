#include <doctest/doctest.h>

#include "cli/live_support.hpp"

namespace dlock::test {
namespace {

TEST_CASE("help: as a command it prints what --help prints, on stdout, with exit code 0") {
  const Place place(Engine::local);
  CHECK(place.dlock({"help"}).out == place.dlock({"--help"}).out);
  for (const char* command : {"run", "latch"}) {
    const auto result = place.dlock({"help", command});
    check_ran(result, place.dlock({command, "--help"}).out);
    CHECK(result.err == "");
    CHECK(holds(result.out, std::string("Usage: dlock ") + command));
  }
  check_says(place.dlock({"help", "relase"}), 64, "did you mean release?");
}

TEST_CASE("help: acquire without a ttl names both ways to keep the lock") {
  const Place place(Engine::local);
  const auto result = place.dlock({"acquire", "a"});
  check_message(result, 64, "-t DUR");
  CHECK(holds(result.err, "--attach \"$$\""));
}

TEST_CASE("help: doctor has colours at a terminal, and none with NO_COLOR or in a pipe") {
  const Place place(Engine::local);
  Watcher user(place);
  user.type("$D doctor; echo code-$?");
  CHECK(user.shows("\x1b[32mok\x1b[0m "));
  CHECK(user.shows("code-"));
  Watcher plain(place, {{"NO_COLOR", "1"}});
  plain.type("$D doctor; echo code-$?");
  REQUIRE(plain.shows("code-"));
  CHECK(plain.count("\x1b[") == 0);
  CHECK(!holds(place.dlock({"doctor"}).out, "\x1b["));
}

}  // namespace
}  // namespace dlock::test
