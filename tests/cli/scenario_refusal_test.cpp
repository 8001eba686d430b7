// A server that answers, but refuses a holder's requests.

#include <doctest/doctest.h>

#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/fault_proxy.hpp"
#include "support/one_of_tries.hpp"
#include "support/patient_start.hpp"
#include "support/scene.hpp"
#include "support/sentinels.hpp"
#include "support/stall_witness.hpp"

namespace dlock::test {
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
