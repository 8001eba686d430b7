// Readers that get a key together after a writer, on a server whose locks are records that all
// clients of a key rewrite.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/databases.hpp"
#include "support/etcd_servers.hpp"
#include "support/zookeeper_servers.hpp"

namespace dlock::test {
namespace {

constexpr milliseconds time_of_a_crowd{120'000};

std::size_t queued_at(const std::string& url) {
  const std::string state = dlock_at(url, {"inspect", "-k", "data", "--json"}).out;
  std::size_t count = 0;
  for (auto at = state.find("\"position\""); at != std::string::npos;
       at = state.find("\"position\"", at + 1)) {
    ++count;
  }
  return count;
}

template <typename Server>
void all_run_and_release() {
  if (is_missing<Server>()) return;
  constexpr std::size_t readers = 100;
  Server server;
  const std::string url = server.url();
  Process writer = start_dlock(
      {"run", "-q", "-k", "data", "--", "sh", "-c", "echo in; exec sleep 1000"}, at(url));
  REQUIRE(eventually([&] { return writer.out() == "in\n"; }, time_of_a_crowd));
  std::vector<Process> all;
  for (std::size_t i = 0; i < readers; ++i) {
    all.push_back(start_dlock({"run", "-q", "-s", "-k", "data", "--", "true"}, at(url)));
  }
  REQUIRE(eventually([&] { return queued_at(url) == readers; }, time_of_a_crowd));
  writer.signal(SIGTERM);
  for (Process& reader : all) {
    const Result result = reader.wait(time_of_a_crowd);
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
  }
  CHECK(dlock_at(url, {"run", "-q", "-w", "3", "-k", "data", "--", "true"}).exit_code == 0);
}

}  // namespace

TEST_CASE("PostgreSQL: readers that a writer lets in together all run, and all release") {
  all_run_and_release<PostgresServer>();
}

TEST_CASE("MariaDB: readers that a writer lets in together all run, and all release") {
  all_run_and_release<MariaDbServer>();
}

TEST_CASE("etcd: readers that a writer lets in together all run, and all release") {
  all_run_and_release<EtcdServers>();
}

TEST_CASE("ZooKeeper: readers that a writer lets in together all run, and all release") {
  all_run_and_release<ZooKeeperServers>();
}

}  // namespace dlock::test
