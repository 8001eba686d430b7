#include <doctest/doctest.h>
#include <signal.h>

#include <string>

#include "support/fault_proxy.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

const char* const stay =
    "\"$STAMP\" \"$LOG\" start k $i; while :; do \"$STAMP\" \"$LOG\" beat k $i; sleep 0.02; done";
const char* const tenure = "\"$STAMP\" \"$LOG\" start k $i; \"$STAMP\" \"$LOG\" end k $i";

bool has_started(const Scene& scene) {
  return eventually([&] { return !read_file(scene.log()).empty(); });
}

}  // namespace

TEST_CASE("the message of a hand-over starts the command, which must end if no renewal follows") {
  RedisScene scene;
  const std::string direct = scene.server.url();
  FaultProxy proxy(scene.server.address());
  Process holder = scene.hold("k", "go");
  scene.go_through(proxy.url());
  Process first = scene.queue_up("k", 1, stay, {"-t", "5"});
  scene.go_through(direct);
  Process second = scene.queue_up("k", 2, tenure);
  proxy.black_hole(Direction::requests);
  const auto released = BootClock::now();
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  REQUIRE(has_started(scene));
  CHECK(BootClock::now() - released < stretched(milliseconds(1000)));
  const Result lost = first.wait();
  CHECK(lost.exit_code == 79);
  CHECK(second.wait().exit_code == 0);
  CHECK(overlaps(scene.log()).empty());
  CHECK(order_of(scene.log()) == first_numbers(2));
}

TEST_CASE("a command goes on where its connection died with the hand-over, and a new one works") {
  RedisScene scene;
  const std::string direct = scene.server.url();
  FaultProxy proxy(scene.server.address());
  Process holder = scene.hold("k", "go");
  scene.go_through(proxy.url());
  Process next = scene.queue_up("k", 1, "touch begun; until [ -e end ]; do sleep 0.05; done");
  proxy.black_hole(Direction::requests, Whom::open_now);
  const auto released = BootClock::now();
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  // By then a hand-over that was not confirmed has ended.
  std::this_thread::sleep_until(released + milliseconds(7000));
  CHECK(scene.has("begun"));
  scene.touch("end");
  CHECK(next.wait().exit_code == 0);
}

TEST_CASE("a command outlives a hiccup of two seconds right after the hand-over") {
  RedisScene scene;
  FaultProxy proxy(scene.server.address());
  Process holder = scene.hold("k", "go");
  scene.go_through(proxy.url());
  Process next = scene.queue_up("k", 1, "touch begun; until [ -e end ]; do sleep 0.05; done");
  proxy.black_hole(Direction::requests);
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  CHECK(eventually([&] { return scene.has("begun"); }));
  std::this_thread::sleep_for(milliseconds(2000));
  proxy.heal();
  std::this_thread::sleep_for(milliseconds(5000));
  scene.touch("end");
  CHECK(next.wait().exit_code == 0);
}

TEST_CASE("a command stopped because its hand-over was not confirmed is told of the server") {
  RedisScene scene;
  FaultProxy proxy(scene.server.address());
  Process holder = scene.hold("k", "go");
  scene.go_through(proxy.url());
  Process next = scene.queue_up("k", 1, stay);
  proxy.black_hole(Direction::requests);
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  const Result result = next.wait();
  CHECK(result.exit_code == 79);
  CHECK(result.err.find("suspended") == std::string::npos);
  CHECK(result.err.find("server unreachable since") != std::string::npos);
}

TEST_CASE("the command of a hand-over runs on under the whole lease once that is confirmed") {
  RedisScene scene;
  Process holder = scene.hold("k", "go");
  Process next = scene.queue_up("k", 1, "sleep 2.5; echo done", {"-t", "6"});
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  const Result result = next.wait();
  CHECK(result.exit_code == 0);
  CHECK(result.out == "done\n");
}

TEST_CASE("a waiter that was stopped while it was let in does not start what another now does") {
  RedisScene scene;
  Process holder = scene.hold("k", "go");
  Process first = scene.queue_up("k", 1, tenure);
  Process second = scene.queue_up("k", 2, stay, {"--max-hold", "2s"});
  first.signal(SIGSTOP);
  first.wait_until_stopped();
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  REQUIRE(has_started(scene));
  first.signal(SIGCONT);
  CHECK(second.wait().exit_code == 124);
  CHECK(first.wait().exit_code == 0);
  CHECK(overlaps(scene.log()).empty());
  CHECK(order_of(scene.log()) == std::vector<long>{2, 1});
}

}  // namespace dlock::test
