#include <doctest/doctest.h>
#include <signal.h>

#include <functional>
#include <string>
#include <vector>

#include "base/duration.hpp"
#include "cli/line.hpp"
#include "support/fault_proxy.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

const char* const beats =
    "while [ $((i += 1)) -lt 4000 ]; do \"$STAMP\" \"$LOG\" beat k 1; sleep 0.01; done";
const char* const server_tenure = "\"$STAMP\" \"$LOG\" start k $i; \"$STAMP\" \"$LOG\" end k $i";

std::vector<std::string> beating(const std::string& beside = "") {
  return {"run", "-t", "6",
          "-k",  "k",  "--",
          "sh",  "-c", "\"$STAMP\" \"$LOG\" start k 1; " + beside + beats};
}

/// Whether the command is dead before the lease ends, when `harm` makes all renewals fail.
bool is_stopped_in_time(const RedisScene& scene, const std::vector<std::string>& job,
                        const std::function<void()>& harm) {
  Process holder =
      patient_start([&] { return scene.start(job); },
                    [&] { return !read_file(scene.log()).empty(); }, "the command did not begin");
  const auto end = lease_end_after(harm, scene.server, "k");
  if (!end) return false;
  const Result result = holder.wait();
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "dlock: lost k: ") == 1);
  const auto all = tenures(scene.log());
  REQUIRE(all.size() == 1);
  CHECK(all.front().end_ns > all.front().start_ns);
  return all.front().end_ns < end->time_since_epoch().count();
}

}  // namespace

TEST_CASE("Redis stopped: the command is dead before the lease ends, 79") {
  CHECK(unless_machine_stalls([] {
    RedisScene scene;
    return is_stopped_in_time(scene, beating(), [&] { scene.server.stop(); });
  }));
}

/// The processes ignore the SIGTERM that comes two seconds before the lease ends. SIGKILL comes
/// half a second before the end.
TEST_CASE("Redis stopped: a family that ignores TERM is dead before the lease ends, 79") {
  const std::string family = std::string("trap '' TERM INT HUP; (") + beats + ") & ";
  CHECK(unless_machine_stalls([&] {
    RedisScene scene;
    return is_stopped_in_time(scene, beating(family), [&] { scene.server.stop(); });
  }));
}

/// Whether the outage is the reported reason for a command that is being stopped when Redis answers
/// again. A holder that the machine stalls until it must stop its command reports another reason.
bool is_stopped_for_the_outage() {
  RedisScene scene;
  const std::string script =
      "trap 'echo >told; sleep 1; exit' TERM; echo >begun; while :; do sleep 0.01; done";
  Process holder = patient_start(
      [&] {
        return scene.start({"run", "-t", "6s", "-k", "k", "--", "sh", "-c", script});
      },
      [&] { return scene.has_text("begun"); }, "the command did not begin");
  scene.server.stop();
  REQUIRE(eventually([&] { return scene.has("told"); }));
  // That second is for the renewal, which succeeds.
  scene.server.cont();
  const Result result = holder.wait();
  CHECK(result.exit_code == 79);
  return times(result.err, "server unreachable since ") == 1 &&
         times(result.err, "suspended or stopped") == 0;
}

TEST_CASE("Redis answers again while the command is being stopped: 79, and the outage is why") {
  CHECK(in_one_of(3, is_stopped_for_the_outage));
}

/// Where only the replies vanish, the server keeps extending the lease: dlock must not count on
/// that.
TEST_CASE(
    "requests, replies or connections are lost: the command is dead before its lease ends, 79") {
  const std::function<void(FaultProxy&)> all[] = {
      [](FaultProxy& proxy) { proxy.black_hole(Direction::requests); },
      [](FaultProxy& proxy) { proxy.black_hole(Direction::replies); },
      [](FaultProxy& proxy) {
        proxy.refuse(true);
        proxy.reset_connections();
      }};
  for (const auto& harm : all) {
    CHECK(unless_machine_stalls([&] {
      RedisScene scene;
      FaultProxy proxy(scene.server.address(), true);
      scene.go_through(proxy.url());
      return is_stopped_in_time(scene, beating(), [&] { harm(proxy); });
    }));
  }
}

TEST_CASE("an outage shorter than the lease allows stops nobody") {
  RedisScene scene;
  FaultProxy proxy(scene.server.address(), true);
  scene.go_through(proxy.url());
  // After the unanswered renewal, three and a half seconds are left for the next one.
  Process holder = scene.hold("k", "go", {"-t", "18"});
  const std::string granted = stored_hold(scene.server);
  proxy.reset_connections();
  proxy.black_hole(Direction::requests);
  const int before = proxy.requests();
  REQUIRE(eventually([&] { return proxy.requests() > before; }));
  proxy.heal();
  REQUIRE(eventually([&] { return stored_hold(scene.server) != granted; }));
  scene.touch("go");
  check_quiet(holder.wait());
  CHECK(scene.kept() == scene.may_stay({"k"}));
}

namespace {

/// Whether the holder notices long before its next renewal.
bool notices_soon_that_redis_is_empty(const std::vector<std::string>& options) {
  RedisScene scene;
  auto job = beating();
  job[2] = "3600";
  job.insert(job.begin() + 1, options.begin(), options.end());
  Process holder =
      patient_start([&] { return scene.start(job); },
                    [&] { return !read_file(scene.log()).empty(); }, "the command did not begin");
  scene.server.restart();
  const auto restarted = BootClock::now();
  const Result result = holder.wait();
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "no longer has it") == 1);
  return BootClock::now() - restarted < milliseconds(2000) + stretched(milliseconds(2000));
}

}  // namespace

TEST_CASE("Redis restarted empty: the holder notices when its connection ends, 79") {
  using Options = std::vector<std::string>;
  for (const Options& options : {Options{}, Options{"--compat", "redis-py"}}) {
    CHECK(unless_machine_stalls([&] { return notices_soon_that_redis_is_empty(options); }));
  }
}

TEST_CASE("a server that closes idle connections makes the holder renew early and quietly") {
  RedisScene scene;
  scene.server.command({"CONFIG", "SET", "timeout", "1"});
  Process holder = scene.hold("k", "go", {"-t", "3600"});
  for (int close = 0; close < 2; ++close) {
    const std::string before = stored_hold(scene.server);
    CHECK(eventually([&] { return stored_hold(scene.server) != before; }));
  }
  scene.touch("go");
  check_quiet(holder.wait());
}

TEST_CASE("the reply to the first request is lost: 69, nothing ran, and the key is free") {
  RedisScene scene;
  scene.send_the_script();
  FaultProxy proxy(scene.server.address());
  scene.go_through(proxy.url());
  bool is_free = false;
  // The job has half a second to release it, which may be too little on a busy machine.
  for (int tries = 0; !is_free && tries < 3; ++tries) {
    scene.server.command({"DEL", "dlock:{k}"});
    proxy.hold(Direction::replies);
    Process job = scene.start({"run", "-k", "k", "--", "touch", "ran"});
    // The replies to the connection's name and to the script.
    REQUIRE(eventually([&] { return proxy.held(Direction::replies) >= 2; }));
    REQUIRE(!stored_hold(scene.server).empty());
    proxy.drop_held(Direction::replies);
    proxy.close_connections();
    CHECK(job.wait().exit_code == 69);
    CHECK_FALSE(scene.has("ran"));
    is_free = scene.run({"run", "-w", "5", "-k", "k", "--", "true"}).exit_code == 0;
  }
  CHECK(is_free);
}

TEST_CASE("a lost release is sent again on a new connection, and nothing is left") {
  RedisScene scene;
  FaultProxy proxy(scene.server.address());
  scene.go_through(proxy.url());
  const auto is_released = [&](const std::string& go, const std::function<void()>& harm) {
    Result result;
    bool released = false;
    // The release has two seconds, which may be too little on a busy machine.
    for (int tries = 0; !released && tries < 3; ++tries) {
      scene.server.command({"DEL", "dlock:{k}"});
      Process holder = scene.hold("k", go + std::to_string(tries));
      harm();
      scene.touch(go + std::to_string(tries));
      result = holder.wait();
      CHECK(result.exit_code == 0);
      released = result.err.empty() && scene.kept() == scene.may_stay({"k"});
      proxy.heal();
    }
    CHECK(result.err == "");
    CHECK(released);
  };
  is_released("a", [&] { proxy.black_hole(Direction::requests, Whom::open_now); });
  is_released("b", [&] { proxy.black_hole(Direction::replies, Whom::open_now); });
  is_released("c", [&] { proxy.close_after(Direction::replies, 1); });
  is_released("d", [&] { proxy.close_connections(); });
}

/// Whether the waiter left the queue, within half a second.
bool leaves_by_a_new_connection() {
  RedisScene scene;
  FaultProxy proxy(scene.server.address());
  scene.go_through(proxy.url());
  Process holder = scene.hold("k", "go");
  Process waiter = scene.queue_up("k", 1, server_tenure);
  proxy.black_hole(Direction::requests, Whom::open_now);
  waiter.signal(SIGTERM);
  CHECK(waiter.wait().signal == SIGTERM);
  // A waiter that does not leave is dropped only after 75 s.
  const bool left = eventually(
      [&] {
        return scene.server.command({"ZCARD", "dlock:{k}:queue"}).number == 0;
      },
      milliseconds(10'000));
  proxy.heal();
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  return left;
}

TEST_CASE("a waiter whose connection has died without a word leaves the queue all the same") {
  CHECK(in_one_of(3, leaves_by_a_new_connection));
}

/// The server still counts the dead connection as a listener, and hands the lock over to it.
TEST_CASE("a waiter whose connection falls silent gets the lock all the same") {
  RedisScene scene;
  FaultProxy proxy(scene.server.address());
  Process holder = scene.hold("k", "go", {"-t", "60"});
  scene.go_through(proxy.url());
  Process waiter = scene.queue_up("k", 1, server_tenure, {"-t", "9"});
  for (const Direction direction : both_directions) proxy.black_hole(direction, Whom::open_now);
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  const auto released = BootClock::now();
  const Result result = waiter.wait();
  CHECK(result.exit_code == 0);
  CHECK(order_of(scene.log()) == first_numbers(1));
  // The first in the queue asks again after 5 s; others do so after 25 s.
  CHECK(BootClock::now() - released < milliseconds(20'000));
}

TEST_CASE("waiters outlive a restart of the server and keep their order") {
  RedisScene scene({.config = {"appendonly yes", "appendfsync always"}});
  Process holder = scene.hold("k", "go");
  std::vector<Process> waiters;
  for (std::size_t i = 1; i <= 3; ++i) waiters.push_back(scene.queue_up("k", i, server_tenure));
  scene.server.restart();
  REQUIRE(eventually([&] {
    return times(scene.server.command({"CLIENT", "LIST", "TYPE", "PUBSUB"}).text, "\n") == 3;
  }));
  scene.touch("go");
  for (Process& waiter : waiters) {
    const Result result = waiter.wait();
    CHECK(result.exit_code == 0);
    // A reconnect that succeeds at once prints nothing.
    const auto lost = times(result.err, "still waiting, trying again");
    CHECK(lost <= 1);
    CHECK(times(result.err, "answers again") == lost);
    CHECK(times(result.err, "\n") == 2 + 2 * lost);
  }
  CHECK(holder.wait().exit_code == 0);
  CHECK(order_of(scene.log()) == first_numbers(3));
  CHECK(scene.kept() == scene.may_stay({"k"}));
}

TEST_CASE("a server that comes up while dlock waits: the waiter tells how long that took") {
  RedisScene scene;
  scene.server.kill_hard();
  Process run = scene.start({"run", "-k", "a", "-w", "50s", "--", "true"});
  REQUIRE(eventually([&] { return holds(run.err(), "still waiting, trying again"); }));
  scene.server.restart();
  const Result result = run.wait();
  CHECK(result.exit_code == 0);
  // From the host's start it would be hours, and never less than this test takes.
  const auto after = result.err.find("a acquired after ");
  REQUIRE(after != std::string::npos);
  const auto told = parse_duration(
      std::string(result.err.substr(after + 17, result.err.find('\n', after) - after - 17)));
  REQUIRE(told);
  CHECK(*told < std::chrono::seconds(50));
}

}  // namespace dlock::test
