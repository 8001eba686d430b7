// Locks in PostgreSQL: the number of requests, directly and behind a PgBouncer.

#include <unistd.h>

#include <future>
#include <set>

#include "base/error.hpp"
#include "cas/cas_store.hpp"
#include "contract/engines.hpp"
#include "sql/sql_backend.hpp"
#include "support/fault_proxy.hpp"
#include "support/pgbouncer.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

StorePtr postgres_store(const std::string& url) {
  return std::make_unique<CasStore>(open_postgres(url, "postgres"), "dlock:");
}

std::string url_at(const std::string& directory, const std::string& port) {
  return "postgres:///postgres?host=" + directory + "&port=" + port + "&user=postgres";
}

/// A client with counted queries; each is a round trip.
class CountedPostgresClient {
 public:
  /// `server` is the directory of a socket with port 5432.
  explicit CountedPostgresClient(const std::string& server)
      : proxy_(Address{server + "/.s.PGSQL.5432", 0}) {
    const std::string socket = proxy_.address().path;
    const std::string name = dir_ / ".s.PGSQL.5432";
    if (symlink(socket.c_str(), name.c_str()) != 0) throw_errno("symlink " + name);
    store = postgres_store(url_at(dir_.path(), "5432"));
  }

  /// The queries on all its connections since the last call.
  int requests() {
    int all = 0;
    for (const std::string& sent : proxy_.recorded()) {
      const auto size_at = [&](std::size_t at) {
        std::size_t size = 0;
        for (std::size_t i = 0; i < 4; ++i) {
          size = size * 256 + static_cast<unsigned char>(sent[at + i]);
        }
        return size;
      };
      // The first message has no type byte.
      for (std::size_t at = sent.size() < 4 ? 0 : size_at(0); at + 5 <= sent.size();) {
        if (sent[at] == 'Q') ++all;
        at += 1 + size_at(at + 1);
      }
    }
    const int since = all - counted_;
    counted_ = all;
    return since;
  }

 private:
  TempDir dir_;
  FaultProxy proxy_;
  int counted_ = 0;

 public:
  StorePtr store;
};

}  // namespace

TEST_CASE("PostgreSQL: an acquire is two round trips, a renewal two, a release one") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer server;
  server.query(create_statement(postgres_dialect));
  CountedPostgresClient client(server.directory());
  const Claim claim = claim_on("k");
  granted(*client.store, claim);
  CHECK(client.requests() == 3);  // a new connection first looks for the table
  CHECK(renew(*client.store, claim));
  CHECK(client.requests() == 2);
  // One release in sixteen also sweeps.
  CHECK(release(*client.store, claim) == Released::yes);
  CHECK(client.requests() <= 2);
  granted(*postgres_store(server.url()), claim_on("k"));
  refused(*client.store, claim_on("k"));
  CHECK(client.requests() == 1);
  // An inspect reads the lock and the latch of that name.
  CHECK(state_of(*client.store, "k").holders.size() == 1);
  CHECK(client.requests() == 2);
}

TEST_CASE(
    "PostgreSQL: a waiter asks nothing while it waits, and is told in the write of a release") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer server;
  server.query(create_statement(postgres_dialect));
  CountedPostgresClient holder(server.directory()), waiter(server.directory());
  const Claim held = claim_on("k"), waiting = claim_on("k");
  granted(*holder.store, held);
  queue_up(*waiter.store, waiting);
  waiter.requests();
  CHECK(waiter.store->sleep(waiting, later(BootClock::now(), std::chrono::seconds(5)), -1).why ==
        Wake::Reason::due);
  CHECK(waiter.requests() == 0);
  CHECK(renew(*holder.store, held));
  holder.requests();
  CHECK(release(*holder.store, held) == Released::yes);
  CHECK(holder.requests() <= 3);  // with a look at the waiters; one in sixteen also sweeps
  const Wake wake = waiter.store->sleep(waiting, soon().deadline, -1);
  CHECK(wake.why == Wake::Reason::granted);
  CHECK(wake.grant);
  CHECK(waiter.requests() == 0);
}

TEST_CASE("PostgreSQL: a renewal goes on asking where the server lets none wait long for a row") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer server({.config = {"lock_timeout=200ms"}});
  const auto holder = postgres_store(server.url());
  const Claim held = claim_on("k");
  granted(*holder, held);
  server.query("BEGIN; LOCK TABLE dlock IN SHARE MODE");
  const auto other = postgres_connection(server.url(), "other");
  auto renewing = std::async(std::launch::async, [&] { return renew(*holder, held); });
  // The third try shows that the server has refused two.
  std::set<std::string> tries;
  CHECK(eventually([&] {
    const std::string waits =
        "SELECT xact_start FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    tries.insert(other->query(waits, soon()).back().first().value_or(""));
    tries.erase("");
    return tries.size() >= 3;
  }));
  server.query("ROLLBACK");
  CHECK(renewing.get());
}

TEST_CASE("PostgreSQL: of two writes over one version the second changes nothing, and is told so") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer server;
  const auto first = open_postgres(server.url(), "first");
  const auto second = open_postgres(server.url(), "second");
  const std::string name = "dlock:k:k";
  const Snapshot none = first->read(name, nullptr, soon());
  REQUIRE(std::holds_alternative<Version>(first->write(name, none, Update{"made"}, soon())));
  const Snapshot seen = second->read(name, nullptr, soon());
  const auto counts = first->write(name, seen, Update{"of the first"}, soon());
  REQUIRE(std::holds_alternative<Version>(counts));
  const auto late = second->write(name, seen, Update{"of the second"}, soon());
  REQUIRE(std::holds_alternative<Snapshot>(late));
  CHECK(std::get<Snapshot>(late).text == "of the first");
}

TEST_CASE(
    "PostgreSQL: a latch that is opened takes away what has ended, however many others last") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer server;
  server.query(create_statement(postgres_dialect));
  // More latches than one page lists, and none of them expires soon.
  server.query(
      "INSERT INTO dlock SELECT convert_to('dlock:latch:a' || n, 'UTF8'), 1, 9e15, "
      "convert_to('x', 'UTF8') "
      "FROM generate_series(1, 60) n; "
      "INSERT INTO dlock VALUES ('dlock:latch:z', 1, 1, 'x')");
  CasStore store(open_postgres(server.url(), "postgres"), "dlock:");
  store.open_latch(LockKey{"m"}, LatchOptions{.count = 1, .ttl = long_ttl}, soon());
  CHECK(server.text("SELECT count(*) FROM dlock WHERE name = 'dlock:latch:z'") == "0\n");
  CHECK(server.text("SELECT count(*) FROM dlock WHERE name >= 'dlock:latch:'") == "61\n");
}

TEST_CASE("PgBouncer: waiters poll in transaction mode, in order, and no session listens") {
  if (is_missing<PgBouncer>()) return;
  PostgresServer server;
  // All clients share one session of the server.
  const PgBouncer pooler(server, "transaction", 1);
  const auto holder = postgres_store(pooler.url());
  const Claim held = claim_on("k");
  granted(*holder, held);
  std::vector<std::unique_ptr<CountedPostgresClient>> waiters;
  std::vector<Claim> claims;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(std::make_unique<CountedPostgresClient>(pooler.directory()));
    claims.push_back(claim_on("k"));
    queue_up(*waiters.back()->store, claims.back());
  }
  waiters[0]->requests();
  const auto has_polled = [&] {
    const auto in_a_second = later(BootClock::now(), std::chrono::seconds(1));
    CHECK(waiters[0]->store->sleep(claims[0], in_a_second, -1).why == Wake::Reason::due);
    return waiters[0]->requests() >= 1;
  };
  CHECK(eventually(has_polled));
  release(*holder, held);
  for (std::size_t i = 0; i < waiters.size(); ++i) {
    CHECK(news(*waiters[i]->store, claims[i], Wake::Reason::granted));
    CHECK(renew(*waiters[i]->store, claims[i]));
    CHECK(release(*waiters[i]->store, claims[i]) == Released::yes);
  }
  const auto session = postgres_connection(pooler.url(), "pooler");
  CHECK(session->query("SELECT pg_listening_channels()", soon()).back().rows.empty());
}

TEST_CASE("PgBouncer: a hold and a waiter go on when the pooler was killed and started again") {
  if (is_missing<PgBouncer>()) return;
  PostgresServer server;
  PgBouncer pooler(server, "session", 20);
  const auto holder = postgres_store(pooler.url());
  const Claim held = claim_on("k");
  granted(*holder, held);
  LockAcquirer<DeployedEngine> waiter([&] { return postgres_store(pooler.url()); },
                                      {claim_on("k")});
  REQUIRE(eventually([&] { return waiter.listener.waits(); }));
  pooler.kill_hard();
  pooler.start();
  CHECK(renew(*holder, held));
  CHECK(release(*holder, held) == Released::yes);
  CHECK(had(waiter.result()).size() == 1);
}

}  // namespace dlock::test
