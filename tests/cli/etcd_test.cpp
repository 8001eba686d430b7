// Locks in etcd with one and three members, as users of dlock see them.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <set>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/etcd_servers.hpp"
#include "support/fault_proxy.hpp"

namespace dlock::test {
namespace {

TEST_CASE("etcd: locks, latches and guards live there") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  CHECK(run_at(etcd.url()).exit_code == 0);
  // A free key keeps one entry for its fence.
  CHECK(etcd.keys() == std::vector<std::string>{"dlock:k:a"});
  check_all_commands_at(etcd.url());
}

TEST_CASE("etcd: a holder whose lease is revoked by hand stops its command") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  CommandInside holder(etcd.url(), {"-t", "6s"});
  etcd.clear();
  CHECK(holder.process.wait(milliseconds(60'000)).exit_code == 79);
}

std::set<std::int64_t> leases_in(EtcdServers& etcd) {
  std::set<std::int64_t> leases;
  for (const EtcdEntry& entry : etcd.entries()) leases.insert(entry.lease);
  return leases;
}

TEST_CASE("etcd: a waiter whose lease is revoked by hand queues again, and is let in") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  const std::string url = etcd.url();
  CommandInside holder(url, {"-t", "60s"});
  const auto before = leases_in(etcd);
  Process waiter = start_dlock({"run", "-t", "60s", "-k", "a", "--", "echo", "in"}, at(url));
  REQUIRE(eventually([&] { return says_that_it_waits(waiter); }));
  std::set<std::int64_t> revoked;
  for (const std::int64_t lease : leases_in(etcd)) {
    if (before.contains(lease)) continue;
    revoked.insert(lease);
    etcd.ask("lease/revoke", {{"ID", std::to_string(lease)}});
  }
  REQUIRE(revoked.size() == 1);
  REQUIRE(eventually([&] {
    const auto now = leases_in(etcd);
    return std::any_of(now.begin(), now.end(), [&](std::int64_t lease) {
      return !before.contains(lease) && !revoked.contains(lease);
    });
  }));
  holder.end();
  CHECK(waiter.wait(milliseconds(90'000)).out == "in\n");
}

TEST_CASE("etcd: a waiter whose stream has died without a word hears of the release all the same") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  FaultProxy proxy(Address{"", etcd.endpoint(0).port}, true);
  CommandInside holder(etcd.url(), {"-t", "60s"});
  Process waiter = queued_at("etcd://127.0.0.1:" + std::to_string(proxy.address().port), 1,
                             {"-t", "9s", "--", "echo", "in"});
  // The waiter sleeps once it also has its stream.
  REQUIRE(fall_asleep({waiter.pid()}, milliseconds(500)));
  const int before = proxy.connections();
  proxy.black_hole(Direction::requests, Whom::open_now);
  proxy.black_hole(Direction::replies, Whom::open_now);
  // The waiter renews its lease on a new connection, and has its stream on another.
  REQUIRE(eventually([&] { return proxy.connections() >= before + 2 || !waiter.running(); }));
  const auto released = BootClock::now();
  holder.end();
  CHECK(waiter.wait(milliseconds(90'000)).out == "in\n");
  // On its own the waiter would look after 25 s.
  CHECK(BootClock::now() - released < milliseconds(15'000));
}

TEST_CASE("etcd: a hold that has ended is free, though one of the same token beside it lives on") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers& etcd = cleared<EtcdServers>();
  const std::string url = etcd.url();
  REQUIRE(dlock_at(url, {"acquire", "-k", "a", "-k", "b", "-t", "60s"}).exit_code == 0);
  const auto lasts = [&](const char* pattern) {
    return dlock_at(url, {"inspect", "-q", pattern}).exit_code == 0;
  };
  CHECK(lasts("a*"));
  const auto entries = etcd.entries();
  const auto life = std::find_if(entries.begin(), entries.end(), [](const EtcdEntry& entry) {
    return entry.key.starts_with("dlock:k:a\n");
  });
  REQUIRE(life != entries.end());
  etcd.ask("lease/revoke", {{"ID", std::to_string(life->lease)}});
  CHECK(dlock_at(url, {"inspect", "-q", "a"}).exit_code == 1);
  CHECK(dlock_at(url, {"inspect", "-q", "a*"}).exit_code == 1);
  CHECK(lasts("b*"));
}

TEST_CASE(
    "etcd: a job that holds a lock keeps it while the leader is killed, and another elected") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd({.members = 3});
  check_lock_outlives_leader(etcd, etcd.url());
}

TEST_CASE("etcd: a holder that is left with a minority stops its command before its lease ends") {
  if (is_missing<EtcdServers>()) return;
  // On a busy machine, a renewal may just be late, but not every time.
  CHECK(in_one_of(3, [] {
    EtcdServers etcd({.members = 3});
    return holder_tries_alone(etcd, etcd.url());
  }));
}

TEST_CASE("etcd: jobs that ask at once with a min-hold run one after another") {
  if (is_missing<EtcdServers>()) return;
  const std::string url = cleared<EtcdServers>().url();
  const auto start_job = [&] {
    return start_dlock(
        {"run", "-t", "15s", "--min-hold", "2s", "-k", "a", "--", "sh", "-c", "echo in; sleep 4"},
        at(url));
  };
  std::vector<Process> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(start_job());
  for (Process& job : jobs) {
    auto result = job.wait(milliseconds(90'000));
    // On a busy machine, three at once may get no answer in time.
    if (result.exit_code == 69) result = start_job().wait(milliseconds(90'000));
    check_ran(result, "in\n");
    CHECK(result.err.find("lost") == std::string::npos);
  }
}

TEST_CASE("etcd: the command inherits no descriptor of dlock's") {
  if (is_missing<EtcdServers>()) return;
  const std::vector<std::string> count{"run", "-q", "-k", "a", "--", "sh", "-c", "ls /proc/$$/fd"};
  CHECK(dlock_at(cleared<EtcdServers>().url(), count).out == dlock_at("local:", count).out);
}

}  // namespace
}  // namespace dlock::test
