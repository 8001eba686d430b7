// Locks in ZooKeeper with one and three servers, as users of dlock see them.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>

#include "cli/place.hpp"
#include "cli/zookeeper.hpp"
#include "support/eventually.hpp"
#include "support/one_of_tries.hpp"

namespace dlock::test {
namespace {

TEST_CASE("zookeeper: locks, latches and guards live there, and fences count its changes") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers& zookeeper = one_zookeeper();
  const std::string url = zookeeper.url();
  const auto fence = [&] {
    const auto ran = dlock_at(url, {"run", "-k", "a", "--", "sh", "-c", "echo $DLOCK_FENCE"});
    return std::stoll(ran.out);
  };
  const auto one = fence(), two = fence();
  CHECK(one > 0);
  CHECK(two > one);
  CHECK(two < 100'000'000'000);
  // A free key leaves nothing: its fence needs no memory there.
  CHECK(zookeeper.nodes() == std::vector<std::string>{"/dlock", "/dlock/clock"});
  check_all_commands_at(url);
}

TEST_CASE("zookeeper: a hold outlives its session, and its next renewal puts its child back") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers& zookeeper = one_zookeeper();
  const auto child = [&] {
    const auto nodes = zookeeper.nodes("/dlock");
    const auto found = std::find_if(nodes.begin(), nodes.end(), [](const auto& node) {
      return node.find("/k:a/b-") != std::string::npos;
    });
    return found == nodes.end() ? std::string() : *found;
  };
  CommandInside holder(zookeeper.url(), {"-t", "12s"});
  REQUIRE(eventually([&] { return !child().empty(); }));
  zookeeper.ask(
      {ZooKeeperRequest::Kind::multi, "", "", {{ZooKeeperChange::Kind::remove, child()}}});
  CHECK(dlock_at(zookeeper.url(), {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(eventually([&] { return !child().empty(); }));
  CHECK(holder.process.running());
  holder.end();
  CHECK(holder.process.wait().exit_code == 0);
}

TEST_CASE(
    "zookeeper: a deployment that stood still does not run after a newer one that has ended") {
  if (is_missing<ZooKeeperServers>()) return;
  const std::string url = one_zookeeper().url();
  CommandInside present(url);
  const auto deploy = [&](const std::string& word) {
    return queued_at(url, 1, {"--latest", "-t", "9s", "--", "echo", word});
  };
  Process older = deploy("1");
  older.signal(SIGSTOP);
  // Its session ends, and so does its place in the queue.
  REQUIRE(eventually([&] { return waiters(url) == 0; }, milliseconds(60'000)));
  Process newer = deploy("2");
  present.end();
  CHECK(newer.wait(milliseconds(90'000)).out == "2\n");
  older.signal(SIGCONT);
  const auto late = older.wait(milliseconds(90'000));
  CHECK(late.exit_code == 75);
  CHECK(late.out == "");
}

TEST_CASE("zookeeper: a job keeps its lock while the leader is killed, and another elected") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers zookeeper({.servers = 3, .tick = milliseconds(200)});
  const std::string url = zookeeper.url();
  CommandInside holder(url, {"-t", "30s"});
  Process waiter = queued_at(url, 1, {"-t", "30s", "--", "echo", "in"});
  const auto leader = zookeeper.leader();
  zookeeper.kill_hard(leader);
  REQUIRE(eventually([&] { return zookeeper.leader() != leader; }));
  CHECK(dlock_at(url, {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(holder.process.running());
  holder.end();
  CHECK(waiter.wait(milliseconds(90'000)).out == "in\n");
  CHECK(holder.process.wait().exit_code == 0);
}

/// Whether a holder with only a minority left kept trying for a while before it stopped its
/// command; up to a third of its lease may have passed before that.
bool zookeeper_holder_tries_alone() {
  ZooKeeperServers zookeeper({.servers = 3, .tick = milliseconds(200)});
  CommandInside holder(zookeeper.url(), {"-t", "6s"});
  const auto before = BootClock::now();
  zookeeper.kill_hard(0);
  zookeeper.stop(1);
  const auto ended = holder.process.wait(milliseconds(60'000));
  CHECK(ended.exit_code == 79);
  const bool tried = BootClock::now() - before > std::chrono::seconds(2);
  check_message(run_at(zookeeper.url()), 69);
  return tried;
}

TEST_CASE("zookeeper: a holder that is left with a minority stops its command in time") {
  if (is_missing<ZooKeeperServers>()) return;
  // On a busy machine, a renewal may just be late, but not every time.
  CHECK(in_one_of(3, zookeeper_holder_tries_alone));
}

TEST_CASE("zookeeper: the command inherits no descriptor of dlock's, also after dead servers") {
  if (is_missing<ZooKeeperServers>()) return;
  std::string url = one_zookeeper().url();
  url.insert(url.find("://") + 3, "127.0.0.1:1,127.0.0.1:2,");
  const std::vector<std::string> count{"run", "-q", "-k", "a", "--", "sh", "-c", "ls /proc/$$/fd"};
  for (int i = 0; i < 1; ++i) CHECK(dlock_at(url, count).out == dlock_at("local:", count).out);
}

}  // namespace
}  // namespace dlock::test
