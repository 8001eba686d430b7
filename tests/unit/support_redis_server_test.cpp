#include <doctest/doctest.h>

#include "base/error.hpp"
#include "support/clock_control.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"
#include "support/redis_server.hpp"
#include "support/resp.hpp"
#include "support/sockets.hpp"

namespace dlock::test {
namespace {

microseconds time_of(const RedisServer& server) {
  const Reply time = server.command({"TIME"});
  return microseconds(std::stoll(time.items.at(0).text) * 1'000'000 +
                      std::stoll(time.items.at(1).text));
}

RedisServer server_under(const ShimClock& clock) {
  RedisOptions options;
  options.env = clock.environment();
  return RedisServer(options);
}

}  // namespace

TEST_CASE("a server answers each kind of reply as a value and is gone afterwards") {
  pid_t pid = 0;
  {
    const RedisServer server;
    pid = server.pid();
    CHECK(server.command({"SET", "a", "b"}).text == "OK");
    CHECK(server.command({"GET", "a"}).text == "b");
    CHECK(server.command({"GET", "none"}).kind == Reply::Kind::nothing);
    CHECK(server.command({"DBSIZE"}).number == 1);
    CHECK(server.command({"KEYS", "*"}).items.at(0).text == "a");
    CHECK(server.command({"LPUSH", "a", "x"}).kind == Reply::Kind::error);
    CHECK(server.command({"DEBUG", "SLEEP", "0"}).text == "OK");
  }
  CHECK_FALSE(is_alive(pid));
}

TEST_CASE("a server restarts empty on the same addresses") {
  RedisOptions options;
  options.tcp = true;
  options.password = "secret";
  RedisServer server(options);
  const std::string tcp_url = server.tcp_url();
  server.command({"SET", "a", "b"});
  server.kill_hard();
  CHECK_THROWS_AS(server.command({"PING"}), Error);
  server.restart();
  CHECK(server.tcp_url() == tcp_url);
  CHECK(server.command({"GET", "a"}).kind == Reply::Kind::nothing);
  const Fd stranger = connect_to({"", server.port()});
  send_all(stranger.get(), request({"PING"}));
  CHECK(receive_some(stranger.get()).find("-NOAUTH") == 0);
}

TEST_CASE("a server keeps its data over a restart where its configuration says so") {
  RedisOptions options;
  options.config = {"appendonly yes", "appendfsync always"};
  RedisServer server(options);
  server.command({"SET", "a", "b"});
  const pid_t before = server.pid();
  server.restart();
  CHECK(server.pid() != before);
  CHECK_FALSE(is_alive(before));
  CHECK(server.command({"GET", "a"}).text == "b");
}

TEST_CASE("a stopped server is silent until it is continued") {
  RedisServer server;
  server.stop();
  const Fd client = connect_to(server.address());
  send_all(client.get(), request({"PING"}));
  CHECK(receive_some(client.get(), milliseconds(20)).empty());
  server.cont();
  CHECK(receive_some(client.get()) == "+PONG\r\n");
}

TEST_CASE("a configuration the server refuses is an error that shows its log") {
  RedisOptions options;
  options.config = {"no-such-setting 1"};
  CHECK_THROWS_WITH_AS(RedisServer{options}, doctest::Contains("no-such-setting"), Error);
}

TEST_CASE("a server under the shim tells the time it is given, at once") {
  ShimClock clock;
  const RedisServer server = server_under(clock);
  CHECK(time_of(server) == clock.now());
  for (int round = 0; round < 50; ++round) {
    clock.advance(milliseconds(round % 7 == 0 ? -40 : 100));
    REQUIRE(time_of(server) == clock.now());
  }
  clock.set(std::chrono::seconds(1'000'000'000));
  CHECK(time_of(server) == std::chrono::seconds(1'000'000'000));
}

TEST_CASE("a shim's clock that runs goes on with the machine's from where it was moved to") {
  ShimClock clock(true);
  const RedisServer server = server_under(clock);
  clock.advance(std::chrono::seconds(-60));
  for (int round = 0; round < 3; ++round) {
    const auto before = clock.now();
    const auto told = time_of(server);
    CHECK(before <= told);
    CHECK(told <= clock.now());
    const auto moved = clock.now();
    CHECK(moved < wall_now().time_since_epoch() - std::chrono::seconds(59));
    CHECK(eventually([&] { return clock.now() > told; }));
  }
  clock.set(std::chrono::seconds(1'000'000'000));
  CHECK(time_of(server) - std::chrono::seconds(1'000'000'000) < std::chrono::minutes(1));
}

TEST_CASE("keys under the shim expire by its clock and by nothing else") {
  ShimClock clock;
  const RedisServer server = server_under(clock);
  server.command({"SET", "a", "b", "PX", "20"});
  CHECK_FALSE(eventually(
      [&] {
        return server.command({"PTTL", "a"}).number != 20;
      },
      milliseconds(60)));
  clock.advance(milliseconds(19));
  CHECK(server.command({"PTTL", "a"}).number == 1);
  clock.advance(milliseconds(2));
  CHECK(server.command({"PTTL", "a"}).number == -2);
  CHECK(server.command({"EXISTS", "a"}).number == 0);
}

TEST_CASE("a server under the shim stays healthy when its clock jumps a minute either way") {
  ShimClock clock;
  const RedisServer server = server_under(clock);
  server.command({"SET", "a", "b", "PX", "30000"});
  clock.advance(std::chrono::seconds(-60));
  CHECK(server.command({"PTTL", "a"}).number == 90'000);
  clock.advance(std::chrono::seconds(120));
  CHECK(server.command({"PTTL", "a"}).number == -2);
  for (int round = 0; round < 20; ++round) {
    CHECK(server.command({"EVAL", "return redis.call('SET', KEYS[1], '1')", "1", "k"}).text ==
          "OK");
    clock.advance(std::chrono::seconds(round % 2 == 0 ? 60 : -60));
  }
}

}  // namespace dlock::test
