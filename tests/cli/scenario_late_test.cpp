#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/fault_proxy.hpp"
#include "support/fleet.hpp"
#include "support/scene.hpp"
#include "support/sentinels.hpp"

// Answers that come late or never, such as a grant that is read after its lease ended, and a server
// that refuses a holder's requests.

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
  late.stop();
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
  const auto scripts_run = [&] { return count_calls(scene.server, "evalsha"); };
  const auto before_it = scripts_run();
  proxy.deliver_held(Direction::requests);
  REQUIRE(eventually([&] { return scripts_run() > before_it; }));
  CHECK(is_free(scene));
}

namespace {

const std::vector<std::string> refusals{
    "-LOADING Redis is loading the dataset in memory",
    "-BUSY Redis is busy running a script",
    "-NOREPLICAS Not enough good replicas to write.",
    "-READONLY You can't write against a read only replica.",
    "-MASTERDOWN Link with MASTER is down",
    "-TRYAGAIN Multiple keys request during rehashing of slot",
    "-CLUSTERDOWN The cluster is down",
    "-MISCONF Redis is configured to save RDB snapshots",
    "-OOM command not allowed when used memory > 'maxmemory'.",
    "-NOPERM this user has no permissions to run the 'evalsha' command",
};

/// A holder of "k" whose server refuses its first renewal with `refusal`, or all of them if
/// `goes_on`.
struct Refused {
  Refused(std::string error, bool goes_on) : refusal(std::move(error)) {
    scene.send_the_script();
    // The first two replies are those to the connection's name and the grant.
    proxy.refuse_requests(refusal, 2, goes_on ? std::numeric_limits<int>::max() : 1);
    scene.go_through(proxy.url());
    holder.emplace(scene.start({"run", "-t", "9", "-k", "k", "--", "sh", "-c",
                                "\"$STAMP\" \"$LOG\" start k 1; until [ -e go ]; do \"$STAMP\" "
                                "\"$LOG\" beat k 1; sleep 0.02; done"}));
    REQUIRE(eventually([&] { return !read_file(scene.log()).empty() || !holder->running(); }));
    scene.go_through(scene.server.url());
    if (holder->running()) {
      end = lease_end(scene.server, "k");
      return;
    }
    const Result ended = holder->wait();
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 69);
  }
  Refused(const Refused&) = delete;
  Refused& operator=(const Refused&) = delete;

  std::string refusal;
  RedisScene scene;
  FaultProxy proxy{scene.server.address()};
  std::optional<Process> holder;
  Deadline end{};  ///< of the lease that the server granted
};

std::deque<Refused> all_refused(bool goes_on) {
  std::deque<Refused> all;
  for (const std::string& refusal : refusals) {
    // On a busy machine, the first request may come too late for such a short lease.
    const auto begins = [&] {
      all.emplace_back(refusal, goes_on);
      const bool begun = all.back().end != Deadline{};
      if (!begun) all.pop_back();
      return begun;
    };
    REQUIRE(in_one_of(5, begins));
  }
  return all;
}

}  // namespace

/// The server executes the renewals, and the proxy refuses them: dlock must not count on them.
TEST_CASE("every renewal is refused, whatever the reason: dead before the lease ends, 79") {
  CHECK(unless_machine_stalls([] {
    std::deque<Refused> all = all_refused(true);
    bool in_time = true;
    for (Refused& each : all) {
      const Result result = each.holder->wait();
      CAPTURE(each.refusal);
      CAPTURE(result.err);
      CHECK(result.exit_code == 79);
      CHECK(times(result.err, "dlock: lost k: ") == 1);
      const bool dead =
          tenures(each.scene.log()).back().end_ns < each.end.time_since_epoch().count();
      if (!dead) MESSAGE("late: " << each.refusal);
      in_time = in_time && dead;
    }
    return in_time;
  }));
}

TEST_CASE(
    "one renewal is refused, whatever the reason: the next one is not, and the command goes on") {
  std::deque<Refused> all = all_refused(false);
  for (Refused& each : all) {
    CAPTURE(each.refusal);
    // After two renewals, and so beyond the first lease.
    CHECK(eventually([&] {
      return !each.holder->running() ||
             lease_end(each.scene.server, "k") > each.end + milliseconds(6500);
    }));
    each.scene.touch("go");
    check_quiet(each.holder->wait());
  }
}

namespace {

/// A master that accepts writes only with a replica in sync, and that replica.
class WatchedMaster final : public Scene {
 public:
  std::string url() const override { return to_; }
  std::string kept() const override { return ""; }
  std::string may_stay(std::vector<std::string>) const override { return ""; }
  void go_to(const RedisServer& server) { to_ = server.tcp_url(); }

  mutable Sentinels fleet{
      {.replicas = 1, .sentinels = 1, .server_config = {"min-replicas-to-write 1"}}};

 private:
  std::string to_ = fleet.master().tcp_url();
};

void is_refused_for_replicas(const WatchedMaster& scene, const std::string& key) {
  const Result result = scene.run({"run", "-n", "-t", "30", "-k", key, "--", "touch", "ran"});
  CHECK(result.exit_code == 69);
  CHECK(times(result.err, "too few replicas") == 1);
  CHECK_FALSE(scene.has("ran"));
}

}  // namespace

TEST_CASE("a master cut off from its replicas grants and renews nothing: 79, then the new one") {
  WatchedMaster scene;
  RedisServer& master = scene.fleet.master();
  RedisServer& replica = *scene.fleet.replicas().front();
  Process holder = patient_start(
      [&] {
        return scene.start({"run", "-t", "9", "-k", "k", "--", "sh", "-c",
                            "echo $DLOCK_FENCE >fence; \"$STAMP\" \"$LOG\" start k 1; while :; "
                            "do \"$STAMP\" \"$LOG\" beat k 1; sleep 0.02; done"});
      },
      [&] { return scene.has_text("log"); }, "the holder did not begin");
  // A replica reports its offset once a second. On a busy machine, it is sometimes later than that,
  // and the master then refuses a request.
  master.command({"CONFIG", "SET", "min-replicas-max-lag", "1"});
  replica.stop();
  const Result lost = holder.wait();
  CAPTURE(lost.err);
  CHECK(lost.exit_code == 79);
  is_refused_for_replicas(scene, "other");
  // The replica must not reconnect before it is a master.
  master.stop();
  replica.cont();
  replica.command({"REPLICAOF", "NO", "ONE"});
  replica.command({"CONFIG", "SET", "min-replicas-to-write", "0"});
  master.cont();
  REQUIRE(eventually([&] {
    return times(master.command({"INFO", "replication"}).text, "connected_slaves:0\r\n") == 1;
  }));
  scene.go_to(replica);
  Process next = scene.start({"run", "-k", "k", "--", "sh", "-c",
                              "echo $DLOCK_FENCE >next; \"$STAMP\" \"$LOG\" start k 2; until [ -e "
                              "go ]; do sleep 0.01; done; \"$STAMP\" \"$LOG\" end k 2"});
  CHECK(scene.number_in("next") > scene.number_in("fence"));
  // The last renewal may have reached only the old master, which then still knows the holder.
  REQUIRE(eventually([&] { return master.command({"EXISTS", "dlock:{k}"}).number == 0; }));
  scene.go_to(master);
  // The master may have accepted a renewal without a replica while it still counted on one.
  REQUIRE(eventually([&] { return !scene.is_held("k"); }));
  is_refused_for_replicas(scene, "k");
  scene.touch("go");
  CHECK(next.wait().exit_code == 0);
  CHECK(overlaps(scene.log()).empty());
}

}  // namespace dlock::test
