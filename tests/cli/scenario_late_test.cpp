// Answers that come late or never: a grant that is read after its lease ended, and a release
// without an answer.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/fault_proxy.hpp"
#include "support/fleet.hpp"
#include "support/one_of_tries.hpp"
#include "support/patient_start.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

/// The result of a command that was stopped before it read its grant of "k", and continued when
/// another client had the lock. Checks that the other client keeps it.
Result grant_read_late(RedisScene& scene, const std::vector<std::string>& words) {
  scene.send_the_script();
  FaultProxy proxy(scene.server.address());
  proxy.hold(Direction::replies);
  scene.go_through(proxy.url());
  Process late = scene.start(words);
  // The replies to the connection's name and to the script; more if it has given up meanwhile.
  REQUIRE(eventually([&] { return proxy.held(Direction::replies) >= 2; }));
  late.signal(SIGSTOP);
  late.wait_until_stopped();
  proxy.deliver_held(Direction::replies);
  scene.go_through(scene.server.url());
  Process next = scene.hold("k", "go");
  const std::string before = scene.server.command({"HKEYS", "dlock:{k}"}).items.at(0).text;
  late.signal(SIGCONT);
  const Result result = late.wait();
  const Reply after = scene.server.command({"HKEYS", "dlock:{k}"});
  CHECK(std::any_of(after.items.begin(), after.items.end(),
                    [&](const Reply& token) { return token.text == before; }));
  scene.touch("go");
  CHECK(next.wait().exit_code == 0);
  // A client that gave up leaves a tombstone for requests in flight.
  if (result.exit_code != 69) {
    CHECK(after.items.size() == 1);
    CHECK(scene.kept() == scene.may_stay({"k"}));
  }
  return result;
}

/// The same; repeats it if the machine was too slow to stop dlock before it gave up.
Result late(const std::vector<std::string>& words, RedisScene& scene) {
  return once_served([&] {
    scene.go_through(scene.server.url());
    scene.server.command({"FLUSHALL"});
    for (const char* name : {"go", "holds-go"}) remove(scene.path(name).c_str());
    return grant_read_late(scene, words);
  });
}

std::string token_of(const Scene& scene) {
  const Result acquired = scene.run({"acquire", "-n", "-t", "60", "k"});
  REQUIRE(acquired.exit_code == 0);
  return acquired.out.substr(0, acquired.out.find('\n'));
}

bool is_free(const RedisScene& scene) { return !scene.is_held("k"); }

}  // namespace

TEST_CASE("a grant that run reads after its lease: 79, and the command is not started") {
  RedisScene scene;
  const Result result = late({"run", "-t", "6", "-k", "k", "--", "touch", "ran"}, scene);
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "no longer has it; COMMAND was not started\n") == 1);
  CHECK_FALSE(scene.has("ran"));
}

TEST_CASE("a grant that acquire reads after its lease: 79, and no token") {
  RedisScene scene;
  const Result result = late({"acquire", "-t", "6", "k"}, scene);
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "no longer has it; no token is printed\n") == 1);
  CHECK(result.out == "");
}

TEST_CASE("release: what was done though its answer was lost is told as done, in one line") {
  RedisScene scene;
  FaultProxy proxy(scene.server.address());
  scene.go_through(proxy.url());
  std::string token;
  // The second answer has two seconds, which may be too little on a busy machine.
  const Result result = once_served([&] {
    scene.server.command({"DEL", "dlock:{k}"});
    proxy.heal();
    token = token_of(scene);
    // The replies to the connection's name and to the release.
    proxy.drop_replies(2);
    return scene.run({"release", "k", "--token", token});
  });
  CHECK(result.exit_code == 0);
  CHECK(times(result.err, "k: the server's first answer was lost; by the second") == 1);
  CHECK(times(result.err, "\n") == 1);
  CHECK(is_free(scene));
  CHECK(scene.run({"release", "k", "--token", token}).exit_code == 79);
}

TEST_CASE("release: of three servers two did it though their answers were lost: told as done") {
  const FleetOptions options{.servers = 3};
  const FleetScene scene(options);
  const Fleet& fleet = scene.fleet;
  // The majority then consists of the servers that will lose their answers.
  fleet.proxy(2).refuse(true);
  const std::string token = token_of(scene);
  fleet.proxy(2).refuse(false);
  const auto holding = [&] {
    std::size_t count = 0;
    for (std::size_t i = 0; i < fleet.size(); ++i) {
      const std::string hold = fleet.server(i).command({"HGET", "dlock:{k}", token}).text;
      // A release leaves a tombstone for a late copy of the acquire; it is not a hold.
      if (!hold.empty() && !hold.starts_with("t ")) ++count;
    }
    return count;
  };
  REQUIRE(holding() == 2);
  std::vector<int> before;
  for (const std::size_t i : {0u, 1u}) {
    fleet.proxy(i).hold(Direction::replies);
    before.push_back(fleet.proxy(i).requests());
  }
  // A server shows its change before its answer has reached the proxy.
  const auto are_held = [&] {
    return std::all_of(before.begin(), before.end(), [&](const int& requests) {
      FaultProxy& proxy = fleet.proxy(static_cast<std::size_t>(&requests - before.data()));
      return proxy.held(Direction::replies) ==
             static_cast<std::size_t>(proxy.requests() - requests);
    });
  };
  Process releasing = scene.start({"release", "k", "--token", token});
  REQUIRE(eventually([&] { return holding() == 0 && are_held(); }));
  for (const std::size_t i : {0u, 1u}) fleet.proxy(i).drop_held(Direction::replies);
  const Result result = releasing.wait();
  CHECK(result.exit_code == 0);
  CHECK(times(result.err, "k: the server's first answer was lost; by the second") == 1);
  CHECK(times(result.err, "\n") == 1);
  CHECK(scene.run({"release", "k", "--token", token}).exit_code == 79);
}

TEST_CASE("release: where no server of three can be reached, nothing is told as done") {
  const FleetOptions options{.servers = 3};
  const FleetScene scene(options);
  const std::string token = token_of(scene);
  for (std::size_t i = 0; i < options.servers; ++i) scene.fleet.proxy(i).refuse(true);
  const Result result = scene.run({"release", "k", "--token", token});
  CHECK(result.exit_code == 69);
  CHECK(times(result.err, "first answer was lost") == 0);
}

TEST_CASE("renew: what was done though its answer was lost is done again, and the lock is held") {
  RedisScene scene;
  const std::string token = token_of(scene);
  FaultProxy proxy(scene.server.address());
  proxy.drop_replies(2);
  scene.go_through(proxy.url());
  const Result unknown = scene.run({"renew", "k", "--token", token});
  CHECK(unknown.exit_code == 69);
  CHECK(times(unknown.err, "\n") == 1);
  CHECK(scene.run({"renew", "k", "--token", token}).exit_code == 0);
  CHECK(scene.run({"release", "k", "--token", token}).exit_code == 0);
}

TEST_CASE("a server that never answers the release: the command's exit code, and one line") {
  for (const int code : {0, 3}) {
    RedisScene scene;
    Process job = scene.start(
        {"run", "-t", "60", "-k", "k", "--", "sh", "-c",
         "echo >begun; until [ -e go ]; do sleep 0.01; done; exit " + std::to_string(code)});
    REQUIRE(eventually([&] { return scene.has("begun"); }));
    scene.server.stop();
    scene.touch("go");
    const Result result = job.wait();
    CHECK(result.exit_code == code);
    CHECK(times(result.err, "could not release k, which ends with its lease: ") == 1);
    CHECK(times(result.err, "\n") == 1);
    scene.server.cont();
    // The request is in the server's socket.
    CHECK(eventually([&] { return is_free(scene); }));
  }
}

TEST_CASE(
    "a late copy of a request of acquire takes no lock that was released by its token since") {
  RedisScene scene;
  FaultProxy proxy(scene.server.address());
  Process holder = scene.hold("k", "go");
  scene.go_through(proxy.url());
  const auto channel = [&] {
    const Reply channels = scene.server.command({"PUBSUB", "CHANNELS", "*{k}:*"});
    return channels.items.size() == 1 ? channels.items[0].text : "";
  };
  Process acquiring = patient_start(
      [&] {
        return scene.start({"acquire", "-w", "60", "-t", "6", "k"});
      },
      [&] { return !channel().empty(); }, "it did not wait");
  // The waiter asks again, and that request stays in the network; another connection gets through.
  proxy.hold(Direction::requests, Whom::open_now);
  const int before = proxy.connections();
  scene.server.command({"PUBLISH", channel(), "next 0"});
  REQUIRE(eventually([&] { return proxy.connections() > before && !channel().empty(); }));
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  const Result acquired = acquiring.wait();
  CHECK(acquired.exit_code == 0);
  scene.go_through(scene.server.url());
  const std::string token = acquired.out.substr(0, acquired.out.find('\n'));
  CHECK(scene.run({"release", "k", "--token", token}).exit_code == 0);
  const auto scripts_run = [&] {
    const std::string stats = scene.server.command({"INFO", "commandstats"}).text;
    const std::string name = "cmdstat_evalsha:calls=";
    return std::stol(stats.substr(stats.find(name) + name.size()));
  };
  const long before_it = scripts_run();
  proxy.deliver_held(Direction::requests);
  REQUIRE(eventually([&] { return scripts_run() > before_it; }));
  CHECK(is_free(scene));
}

}  // namespace dlock::test
