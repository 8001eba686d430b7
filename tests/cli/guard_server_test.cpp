#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/place.hpp"
#include "support/fleet.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

std::vector<std::string> guard_line(const std::string& fence,
                                    const std::string& resource = "store") {
  return {"guard", "--state-key", resource, "--fence", fence, "--", "echo", "ran"};
}

void guard_runs(const Result& result) {
  check_ran(result, "ran\n");
  CHECK(result.err == "");
}

void guard_refused(const Result& result, int code, const std::string& says) {
  check_message(result, code, says);
}

std::string stored_seal(const RedisServer& server) {
  return server.command({"GET", "dlock:{store}:seal"}).text;
}

}  // namespace

TEST_CASE("guard: a server remembers the fence for good, and what is none is left as it is") {
  Place place(Engine::redis);
  guard_runs(place.dlock(guard_line("99")));
  guard_runs(place.dlock(guard_line("100")));
  guard_refused(place.dlock(guard_line("99")), 79,
                "store: fence 99 is older than 100, which is recorded: COMMAND was not run");
  CHECK(stored_seal(place.server()) == "100");
  CHECK(place.server().command({"TTL", "dlock:{store}:seal"}).number == -1);
  guard_runs(place.dlock(guard_line("1", "other {resource}%")));
  CHECK(place.dlock({"inspect"}).out == Place(Engine::redis).dlock({"inspect"}).out);
  for (const char* foreign : {"abc", "", "-1", "1.5", "9007199254740992", "1e3"}) {
    place.server().command({"SET", "dlock:{store}:seal", foreign});
    guard_refused(place.dlock(guard_line("200")), 65, "dlock:{store}:seal");
    CHECK(stored_seal(place.server()) == foreign);
  }
  place.server().command({"DEL", "dlock:{store}:seal"});
  place.server().command({"LPUSH", "dlock:{store}:seal", "1"});
  guard_refused(place.dlock(guard_line("200")), 65, "dlock:{store}:seal");
  CHECK(place.server().command({"TYPE", "dlock:{store}:seal"}).text == "list");
  place.server().kill_hard();
  guard_refused(place.dlock(guard_line("200", "third")), 69, "redis.sock");
}

TEST_CASE("guard: on this host the seal is a file beside the locks, and commands are kept apart") {
  const Place place(Engine::local);
  const std::string file = place.url().substr(6) + "/a%2Fb.fence";
  Process first = place.start(
      {"guard", "--state-key", "a/b", "--fence", "7", "--", "sh", "-c", "echo in; exec sleep 60"});
  REQUIRE(eventually([&] { return first.out() == "in\n"; }));
  CHECK(read_file(file) == "7\n");
  Process second = place.start(guard_line("8", "a/b"));
  CHECK(eventually([&] { return holds(second.err(), "waiting: a/b is locked"); }));
  first.signal(SIGKILL);
  CHECK(second.wait().out == "ran\n");
  guard_refused(place.dlock(guard_line("7", "a/b")), 79, "a/b: fence 7 is older than 8");
  CHECK(place.dlock({"inspect"}).out == Place(Engine::local).dlock({"inspect"}).out);
  write_file(file, "junk");
  guard_refused(place.dlock(guard_line("9", "a/b")), 65, "a%2Fb.fence");
}

TEST_CASE("guard: of several servers a majority records, and any of them that is ahead refuses") {
  const FleetScene scene({.servers = 3});
  const Fleet& fleet = scene.fleet;
  guard_runs(scene.run(guard_line("10")));
  fleet.server(0).command({"SET", "dlock:{store}:seal", "12"});
  fleet.server(1).stop();
  // The server that is ahead may be the slower of the two that answer, but dlock still hears it.
  guard_refused(scene.run(guard_line("11")), 79, "store: fence 11 is older than 12");
  const Result sealed = scene.run(guard_line("13"));
  guard_runs(sealed);
  CHECK(sealed.duration < stretched(milliseconds(4000)));
  CHECK(stored_seal(fleet.server(0)) == "13");
  CHECK(stored_seal(fleet.server(2)) == "13");
  fleet.server(1).cont();
  // The absent server has not seen the fence, but any majority includes one that has.
  for (std::size_t away : {0U, 2U}) {
    fleet.server(away).stop();
    guard_refused(scene.run(guard_line("12")), 79, "store: fence 12 is older than 13");
    fleet.server(away).cont();
  }
  fleet.server(0).kill_hard();
  fleet.server(2).kill_hard();
  guard_refused(scene.run(guard_line("14")), 69, "no majority of 3 servers");
}

}  // namespace dlock::test
