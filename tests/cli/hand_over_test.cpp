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
