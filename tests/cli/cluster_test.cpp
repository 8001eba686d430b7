#include <doctest/doctest.h>

#include <atomic>
#include <sstream>
#include <string>
#include <vector>

#include "cli/line.hpp"
#include "cli/place.hpp"
#include "support/cluster.hpp"
#include "support/fake_server.hpp"
#include "support/resp.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

Result try_lock(const std::string& url, const std::string& ttl) {
  return dlock({"run", "-n", "-k", "k", "-t", ttl, "--server", url, "--", "echo", "ran"});
}

void is_refused(const std::string& url, const std::string& why, int code = 69,
                const std::string& ttl = "6s") {
  Result result;
  // On a busy machine, the answer may be too late, but not in every try.
  in_one_of(3, [&] { return holds((result = try_lock(url, ttl)).err, why); });
  check_message(result, code, why);
  CHECK(result.duration < stretched(milliseconds(5000)));
}

std::string url_of(int port) { return "redis+cluster://127.0.0.1:" + std::to_string(port); }

/// A node without a slot map that answers every script like this.
FakeServer node_saying(const std::string& answer) {
  return FakeServer(
      [=](const std::vector<std::string>& words) {
        if (words.front() == "CLUSTER") return say("*0\r\n");
        return words.front().starts_with("EVAL") ? say(answer) : say("+OK\r\n");
      },
      true);
}

void is_refused_by_node_saying(const std::string& answer, const std::string& why) {
  const FakeServer node = node_saying(answer);
  is_refused(url_of(node.address().port), why);
}

}  // namespace

TEST_CASE("a slot moves under a holder and ten waiters: it keeps the lock, they follow in order") {
  ClusterScene scene;
  const std::string key = Cluster::key_of(0);
  const int slot = Cluster::slot_of(key);
  Line line(scene, key);
  scene.cluster.begin_move(slot, 0, 1);
  scene.cluster.move_keys(slot, 0, 1);
  const auto asked = count_calls(scene.cluster.node(1), "asking");
  REQUIRE(eventually([&] { return count_calls(scene.cluster.node(1), "asking") > asked; }));
  scene.cluster.end_move(slot, 0, 1);
  await_renewal(scene.cluster.node(1), key);
  scene.touch("go");
  check_quiet(line.holder.wait());
  was_served_in_order(scene, line);
  CHECK(scene.kept() == scene.may_stay({key}));
}

TEST_CASE("a master dies under a holder and ten waiters: its replica serves them in order") {
  const ClusterOptions options{.replicas = true};
  ClusterScene scene(options);
  const std::string key = Cluster::key_of(0);
  scene.go_through(scene.cluster.url({0}));
  Line line(scene, key);
  scene.go_through(scene.cluster.url({1, 2}));
  await_renewal(scene.cluster.node(0), key);
  // The replica knows this lease.
  const Deadline end = lease_end(scene.cluster.node(0), key);
  scene.cluster.notice_deaths_soon();
  const auto died = BootClock::now();
  scene.cluster.node(0).kill_hard();
  REQUIRE(eventually([&] { return scene.cluster.is_master(3); }, milliseconds(60'000)));
  const auto away = BootClock::now() - died;
  MESSAGE("failover took " << std::chrono::floor<milliseconds>(away).count() << " ms");
  REQUIRE(eventually([&] { return !line.holder.running() || scene.is_held(key); }));
  const bool soon_enough = BootClock::now() < end - milliseconds(2000);
  if (soon_enough) await_renewal(scene.cluster.node(3), key);
  scene.touch("go");
  const Result held = line.holder.wait();
  CAPTURE(held.err);
  CHECK((held.exit_code == 0 || (held.exit_code == 79 && !soon_enough)));
  was_served_in_order(scene, line);
}

namespace {

/// Whether a holder's command is dead before its lease ends when no node is left.
bool is_stopped_without_nodes() {
  ClusterScene scene;
  const std::string key = Cluster::key_of(0);
  Process holder = patient_start(
      [&] {
        return scene.start({"run", "-t", "6", "-k", key, "--", "sh", "-c",
                            "\"$STAMP\" \"$LOG\" start k 1; while :; do \"$STAMP\" \"$LOG\" "
                            "beat k 1; sleep 0.02; done"});
      },
      [&] { return !read_file(scene.log()).empty(); }, "the command did not begin");
  const auto kill_all = [&] {
    for (std::size_t i = 0; i < 3; ++i) scene.cluster.node(i).kill_hard();
  };
  const auto end = lease_end_after(kill_all, scene.cluster.node(0), key);
  if (!end) return false;
  is_refused(scene.url(), "none of 3 nodes is usable: redis://127.0.0.1:");
  const Result result = holder.wait();
  CHECK(result.exit_code == 79);
  // A holder that the machine stalls until its lease is over reports that instead.
  const bool told = holds(result.err, "server unreachable since");
  const auto all = tenures(scene.log());
  REQUIRE(all.size() == 1);
  return told && all.front().end_ns < end->time_since_epoch().count();
}

}  // namespace

TEST_CASE("a Cluster of which no node is left: 69, in time, and a holder's command is stopped") {
  CHECK(unless_machine_stalls(is_stopped_without_nodes));
}

TEST_CASE("a node that sends everybody to itself: 69, round in circles") {
  std::atomic<int> port = 0, asked = 0;
  FakeServer node(
      [&](const std::vector<std::string>& words) {
        if (words.front() == "CLUSTER") return say("*0\r\n");
        if (!words.front().starts_with("EVAL")) return say("+OK\r\n");
        ++asked;
        return say("-MOVED 1 127.0.0.1:" + std::to_string(port) + "\r\n");
      },
      true);
  port = node.address().port;
  is_refused(url_of(port), "round in circles", 69, "60s");
  // A waiter of another test may look for a dead server at this port.
  CHECK(node.connections() < asked);
}

TEST_CASE("a node that sends to nowhere: 69, and what it said is shown in safe letters") {
  is_refused_by_node_saying("-MOVED 1 no.such.host.invalid:7000\r\n", "no.such.host.invalid");
  is_refused_by_node_saying("-MOVED 1 127.0.0.1:99999\r\n", "it said: MOVED 1 127.0.0.1:99999");
  is_refused_by_node_saying("-ASK 1 a\x1b[2Jb:7000\r\n", "cannot look up a\\x1B[2Jb");
  is_refused_by_node_saying("-MOVED\r\n", "it said: MOVED");
  is_refused_by_node_saying("-CLUSTERDOWN Hash slot not served\r\n", "the Cluster is down");
  is_refused_by_node_saying("-TRYAGAIN Multiple keys\r\n", "the Cluster is moving the key");
}

TEST_CASE("a server alone is no Cluster, whoever sends to it: 69, and it keeps no lock") {
  const RedisServer alone({.tcp = true});
  is_refused(url_of(alone.port()), "it is not a node of a Cluster");
  CHECK(alone.command({"EXISTS", "dlock:{k}"}).number == 0);
  is_refused_by_node_saying("-MOVED 1 127.0.0.1:" + std::to_string(alone.port()) + "\r\n",
                            "it is not a node of a Cluster");
  const RedisServer other({.tcp = true, .password = "of-the-other"});
  is_refused(url_of(other.port()), "the server wants a password", 77);
}

TEST_CASE("inspect of a Cluster whose slots nobody serves does not say that nothing is locked") {
  const UnusedPort bus;
  const RedisServer node(
      {.tcp = true,
       .config = {"cluster-enabled yes", "cluster-port " + std::to_string(bus.number())}});
  const Result result =
      dlock({"inspect", "--server", "redis+cluster://127.0.0.1:" + std::to_string(node.port())});
  check_says(result, 69, "16384 of its slots have no node");
  CHECK(result.out == "");
}

}  // namespace dlock::test
