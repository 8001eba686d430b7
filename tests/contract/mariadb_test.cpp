// Locks in MariaDB: the number of requests, and how waiters watch each other.

#include <cstdlib>
#include <future>
#include <thread>

#include "base/error.hpp"
#include "cas/cas_store.hpp"
#include "contract/engines.hpp"
#include "sql/sql_backend.hpp"
#include "support/fault_proxy.hpp"
#include "support/files.hpp"
#include "support/mariadb_server.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

MariaDbServer& mariadb() {
  static MariaDbServer server;
  server.query("DROP TABLE IF EXISTS dlock; " + create_statement(mysql_dialect));
  return server;
}

StorePtr store_at(MysqlAddress address) {
  return std::make_unique<CasStore>(open_mysql(std::move(address), "mariadb"), "dlock:");
}

Address socket_of(MariaDbServer& server) { return {server.address(false).socket_path, 0}; }

MysqlAddress address_behind(const FaultProxy& proxy, MariaDbServer& server) {
  MysqlAddress address = server.address(false);
  address.socket_path = proxy.address().path;
  return address;
}

/// A client with counted messages; each begins a round trip.
class CountedClient {
 public:
  explicit CountedClient(MariaDbServer& server)
      : proxy_(socket_of(server)), store(store_at(address_behind(proxy_, server))) {}

  /// The packets that begin a command, on all its connections since the last call.
  int requests() {
    int all = 0;
    for (const std::string& sent : proxy_.recorded()) {
      const auto byte = [&](std::size_t at) {
        return std::size_t{static_cast<unsigned char>(sent[at])};
      };
      constexpr std::size_t header = 4;
      for (std::size_t at = 0; at + header <= sent.size();) {
        if (byte(at + 3) == 0) ++all;
        at += header + byte(at) + (byte(at + 1) << 8U) + (byte(at + 2) << 16U);
      }
    }
    const int since = all - counted_;
    counted_ = all;
    return since;
  }
  int connections() { return proxy_.connections(); }

 private:
  FaultProxy proxy_;
  int counted_ = 0;

 public:
  StorePtr store;
};

/// An option file that the user's clients read; the destructor removes it.
class OptionFile {
 public:
  explicit OptionFile(const std::string& options) {
    write_file(home_ / ".my.cnf", "[client]\n" + options);
    setenv("HOME", home_.path().c_str(), 1);
  }
  ~OptionFile() { setenv("HOME", before_.c_str(), 1); }
  OptionFile(const OptionFile&) = delete;
  OptionFile& operator=(const OptionFile&) = delete;

 private:
  static std::string home() {
    const char* const set = std::getenv("HOME");
    return set == nullptr ? "" : set;
  }

  TempDir home_;
  const std::string before_ = home();
};

}  // namespace

TEST_CASE("MariaDB: an acquire is two round trips, a renewal two, a release and an inspect one") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  CountedClient client(server);
  const Claim claim = claim_on("k");
  granted(*client.store, claim);
  CHECK(client.requests() == 2);
  CHECK(renew(*client.store, claim));
  CHECK(client.requests() == 2);
  // One release in sixteen also sweeps, with a request or two.
  CHECK(release(*client.store, claim) == Released::yes);
  CHECK(client.requests() <= 3);
  granted(*store_at(server.address(false)), claim_on("k"));
  const Claim refused_claim = claim_on("k");
  refused(*client.store, refused_claim);
  CHECK(client.requests() == 1);
  CHECK(enters(*client.store, claim_on("other")));
  CHECK(client.requests() == 2);
}

TEST_CASE("MariaDB: what is written counts, also where the server turns autocommit off") {
  if (is_missing<MariaDbServer>()) return;
  std::string setting;
  SUBCASE("for all") { setting = "--autocommit=0"; }
  SUBCASE("for each connection, after its login") { setting = "--init-connect=SET autocommit=0"; }
  MariaDbServer server({setting});
  server.query(create_statement(mysql_dialect));
  // An administrator is exempt from init_connect.
  server.make_user("jobs", "pw", true);
  MysqlAddress address = server.address(false);
  address.user = "jobs";
  address.password = "pw";
  const auto store = store_at(address), other = store_at(address);
  const Claim claim = claim_on("k");
  granted(*store, claim);
  refused(*other, claim_on("k"));
  CHECK(renew(*store, claim));
  CHECK(release(*store, claim) == Released::yes);
  CHECK(enters(*other, claim_on("k")));
}

TEST_CASE("MariaDB: a holder that was evicted hears of it, though its release came twice") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  FaultProxy proxy(socket_of(server));
  const MysqlAddress address = address_behind(proxy, server);
  const auto store = store_at(address), other = store_at(server.address(false));
  const Claim claim = claim_on("k");
  granted(*store, claim);
  CHECK(other->evict(claim.key, {std::nullopt, evictor}, soon()).size() == 1);
  proxy.hold(Direction::requests, Whom::open_now);
  auto releasing =
      std::async(std::launch::async, [&] { return store->release(claim, {}, soon()); });
  CHECK(eventually([&] { return proxy.held(Direction::requests) > 0; }));
  proxy.drop_held(Direction::requests);
  proxy.close_connections();
  const ReleaseResult result = releasing.get();
  CHECK(result.outcome == Released::not_held);
  CHECK(result.evicted_by);
}

TEST_CASE("MariaDB: a floor counts from when the server read its clock, however late it did") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  FaultProxy proxy(socket_of(server));
  const MysqlAddress address = address_behind(proxy, server);
  const auto store = store_at(address), other = store_at(server.address(false));
  Claim claim = claim_on("k");
  claim.floor = milliseconds(4000);
  CHECK(state_of(*store, "k").holders.empty());  // so that it is connected
  proxy.hold(Direction::requests, Whom::open_now);
  auto acquiring = std::async(std::launch::async, [&] { return granted(*store, claim); });
  CHECK(eventually([&] { return proxy.held(Direction::requests) > 0; }));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const auto delivered = BootClock::now();
  proxy.deliver_held(Direction::requests);
  acquiring.get();
  // The min-hold still lasts, but would be over if it counted from the sending of the request.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  CHECK(release(*store, claim) == Released::yes);
  CHECK(eventually([&] { return enters(*other, claim_on("k")); }));
  CHECK(BootClock::now() - delivered >= claim.floor - milliseconds(1));
}

TEST_CASE("MariaDB: a waiter that watches the holder asks little meanwhile") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto holder = store_at(server.address(false));
  const Claim held = claim_on("k");
  granted(*holder, held, {true, {}});
  CountedClient waiter(server);
  const Claim waiting = claim_on("k");
  queue_up(*waiter.store, waiting);
  waiter.requests();
  const auto in_seconds = later(BootClock::now(), std::chrono::seconds(5));
  CHECK(waiter.store->sleep(waiting, in_seconds, -1).why == Wake::Reason::due);
  const int asked = waiter.requests();
  CHECK(asked >= 1);      // the one that waits
  CHECK(asked <= 2 + 2);  // and the looks at the record meanwhile
  // It keeps waiting in the same request.
  const auto again = later(BootClock::now(), milliseconds(500));
  CHECK(waiter.store->sleep(waiting, again, -1).why == Wake::Reason::due);
  CHECK(waiter.requests() == 0);
  CHECK(release(*holder, held) == Released::yes);
  const Wake wake = waiter.store->sleep(waiting, soon().deadline, -1);
  CHECK(wake.why == Wake::Reason::granted);
  CHECK(wake.grant);
  // One look, and the close of the watch's connection.
  CHECK(waiter.requests() <= 3);
}

TEST_CASE("MariaDB: a waiter learns by one request that it was granted, whoever queued up since") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto holder = store_at(server.address(false)), later_one = store_at(server.address(false));
  const Claim held = claim_on("k"), waiting = claim_on("k"), behind = claim_on("k");
  granted(*holder, held);
  CountedClient waiter(server);
  queue_up(*waiter.store, waiting);
  const auto a_moment = later(BootClock::now(), milliseconds(300));
  CHECK(waiter.store->sleep(waiting, a_moment, -1).why == Wake::Reason::due);
  waiter.requests();
  queue_up(*later_one, behind);
  CHECK(release(*holder, held) == Released::yes);
  CHECK(waiter.store->sleep(waiting, soon().deadline, -1).why == Wake::Reason::granted);
  CHECK(waiter.requests() == 1);
}

TEST_CASE(
    "MariaDB: each waiter watches the client before it, and the second looks at the record, too") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto holder = store_at(server.address(false));
  const Claim held = claim_on("k");
  granted(*holder, held, {true, {}});
  const auto stopped = store_at(server.address(false));
  const Claim of_stopped = claim_on("k", milliseconds(6000));
  queue_up(*stopped, of_stopped);
  CHECK(stopped->sleep(of_stopped, later(BootClock::now(), milliseconds(300)), -1).why ==
        Wake::Reason::due);
  CountedClient second(server), third(server);
  const Claim claims[] = {claim_on("k"), claim_on("k")};
  queue_up(*second.store, claims[0]);
  queue_up(*third.store, claims[1]);
  second.requests(), third.requests();
  for (int i = 0; i < 2; ++i) {
    CountedClient& waiter = i == 0 ? second : third;
    const auto in_seconds = later(BootClock::now(), std::chrono::seconds(3));
    CHECK(waiter.store->sleep(claims[i], in_seconds, -1).why == Wake::Reason::due);
    const int asked = waiter.requests();
    CHECK(asked >= 1);                     // the one that waits
    CHECK(asked <= 2 + (i == 0 ? 2 : 0));  // the second also looks at the record
  }
  // The first waiter gets the lock and does nothing with it; the second learns when its hold
  // expires.
  CHECK(release(*holder, held) == Released::yes);
  const Wake wake = second.store->sleep(claims[0], soon().deadline, -1);
  CHECK(wake.why == Wake::Reason::changed);
  CHECK(wake.ask_again_at <= later(BootClock::now(), milliseconds(6000)));
}

TEST_CASE("MariaDB: a waiter is let in within seconds where the evicted holder stays connected") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto open = [&] { return store_at(server.address(false)); };
  const auto holder = open(), administrator = open();
  const Claim held = claim_on("k");
  granted(*holder, held, {true, {}});
  LockAcquirer<DeployedEngine> first(open, {claim_on("k")});
  REQUIRE(eventually([&] { return first.listener.waits(); }));
  LockAcquirer<DeployedEngine> second(open, {claim_on("k")});
  REQUIRE(eventually([&] { return second.listener.waits(); }));
  CHECK(administrator->evict(held.key, {std::nullopt, evictor}, soon()).size() == 1);
  // The holder does not learn of it and stays connected. The waiters would poll after 25 s.
  CHECK(eventually([&] { return first.has_ended() || second.has_ended(); }, milliseconds(15'000)));
  CHECK(first.has_ended() != second.has_ended());
}

TEST_CASE("MariaDB: a waiter polls where it cannot watch, at most twice a second") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto holder = store_at(server.address(false));
  granted(*holder, claim_on("k"));  // it does not listen
  CountedClient waiter(server);
  const Claim waiting = claim_on("k");
  queue_up(*waiter.store, waiting);
  const auto asleep = BootClock::now();
  waiter.store->sleep(waiting, later(asleep, std::chrono::seconds(10)), -1);
  waiter.requests();
  CHECK(waiter.store->sleep(waiting, later(asleep, std::chrono::seconds(14)), -1).why ==
        Wake::Reason::due);
  const int asked = waiter.requests();
  CHECK(asked >= 1);
  CHECK(asked <= 2 * 4 + 1);
}

TEST_CASE("MariaDB: a waiter that polls on a connection that fell silent sleeps no longer for it") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  granted(*store_at(server.address(false)), claim_on("k"));
  FaultProxy proxy(socket_of(server));
  const auto waiter = store_at(address_behind(proxy, server));
  const Claim waiting = claim_on("k");
  queue_up(*waiter, waiting);
  proxy.black_hole(Direction::replies);
  const auto asleep = BootClock::now();
  CHECK(waiter->sleep(waiting, later(asleep, std::chrono::seconds(1)), -1).why ==
        Wake::Reason::due);
  CHECK(BootClock::now() - asleep < std::chrono::seconds(4));
}

TEST_CASE("MariaDB: a killed waiter holds up nobody behind it, nor does one that gives up") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto holder = store_at(server.address(false));
  const Claim held = claim_on("k");
  granted(*holder, held, {true, {}});
  std::vector<StorePtr> stores;
  std::vector<Claim> claims;
  for (int i = 0; i < 4; ++i) {
    stores.push_back(store_at(server.address(false)));
    claims.push_back(claim_on("k"));
    queue_up(*stores.back(), claims.back());
  }
  // Each waiter begins to watch the one before it.
  for (std::size_t i = 0; i < 4; ++i) {
    const auto briefly_on = later(BootClock::now(), milliseconds(100));
    CHECK(stores[i]->sleep(claims[i], briefly_on, -1).why == Wake::Reason::due);
  }
  stores[0].reset();
  release(*stores[1], claims[1]);
  // The later waiters notice it, and watch their new predecessor.
  for (std::size_t i = 2; i < 4; ++i) {
    const auto briefly_on = later(BootClock::now(), milliseconds(500));
    CHECK(stores[i]->sleep(claims[i], briefly_on, -1).why == Wake::Reason::due);
  }
  // A session ends some time after its client has closed it.
  const auto watcher = store_at(server.address(false));
  REQUIRE(eventually([&] { return state_of(*watcher, "k").waiters.size() == 2; }));
  release(*holder, held);
  CHECK(news(*stores[2], claims[2], Wake::Reason::granted));
  CHECK(release(*stores[2], claims[2]) == Released::yes);
  CHECK(news(*stores[3], claims[3], Wake::Reason::granted));
}

TEST_CASE("MariaDB: a waiter that begins to watch a holder that has queued up again is let in") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  // A waiter that misses the departure polls the record only after two and a half seconds.
  constexpr milliseconds in_time{1000};
  int tries = 0;
  CHECK(in_one_of(5, [&] {
    const std::string key = "k" + std::to_string(++tries);
    const auto holder = store_at(server.address(false)), waiter = store_at(server.address(false));
    const Claim held = claim_on(key), waiting = claim_on(key);
    granted(*holder, held, {true, {}});
    queue_up(*waiter, waiting);
    release(*holder, held);
    queue_up(*holder, claim_on(key));
    const auto begun = BootClock::now();
    CHECK(news(*waiter, waiting, Wake::Reason::granted));
    return BootClock::now() - begun < in_time;
  }));
}

TEST_CASE("MariaDB: a holder that rests is watched from the first renewal that finds a waiter") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto holder = store_at(server.address(false));
  const Claim held = claim_on("k");
  granted(*holder, held);
  holder->suspend(Suspension::rest);
  CHECK(eventually([&] { return server.connections() == 0; }));
  CountedClient waiter(server);
  const Claim waiting = claim_on("k");
  queue_up(*waiter.store, waiting);
  CHECK(renew(*holder, held));
  holder->suspend(Suspension::rest);
  // At the next look the waiter sees that it can watch, and opens a connection for that.
  CHECK(eventually([&] {
    waiter.requests();
    waiter.store->sleep(waiting, later(BootClock::now(), milliseconds(200)), -1);
    return waiter.connections() >= 2 && waiter.requests() == 0;
  }));
  const auto in_seconds = later(BootClock::now(), std::chrono::seconds(3));
  CHECK(waiter.store->sleep(waiting, in_seconds, -1).why == Wake::Reason::due);
  CHECK(waiter.requests() <= 1);  // a look at the record
  release(*waiter.store, waiting);
  waiter.store.reset();
  CHECK(renew(*holder, held));
  holder->suspend(Suspension::rest);
  CHECK(eventually([&] { return server.connections() == 0; }));
}

TEST_CASE("MariaDB: a read that waited for the table tells no time from before its record") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto waits = open_mysql(server.address(false), "mariadb");
  const auto administrator = mysql_connection(server.address(false), "mariadb");
  REQUIRE_FALSE(administrator->query("LOCK TABLES dlock WRITE", soon()).back().failed());
  auto reading =
      std::async(std::launch::async, [&] { return waits->read("x:k:k", nullptr, soon()); });
  const std::string is_waiting =
      "SELECT count(*) FROM information_schema.processlist WHERE state LIKE "
      "'Waiting for table metadata lock%'";
  CHECK(eventually([&] { return server.text(is_waiting) == "1\n"; }));
  // A renewal of another client may happen as late as now.
  const std::string clock = "SELECT " + std::string(mysql_dialect.clock);
  const auto later_clock = administrator->query(clock, soon()).back().first().value_or("");
  REQUIRE_FALSE(administrator->query("UNLOCK TABLES", soon()).back().failed());
  CHECK(reading.get().clock >= microseconds(std::stoll(later_clock)));
}

TEST_CASE("MariaDB: an acquire that gave up on a locked row holds nothing once the row is free") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const auto store = store_at(server.address(false)), other = store_at(server.address(false));
  const Claim before = claim_on("k");
  granted(*other, before);
  release(*other, before);
  const auto administrator = mysql_connection(server.address(false), "mariadb");
  administrator->query("BEGIN; SELECT * FROM dlock FOR UPDATE", soon());
  const CallOptions as_run_has{later(BootClock::now(), std::chrono::seconds(5)), -1};
  CHECK_THROWS_AS(store->acquire(claim_on("k"), {}, as_run_has), Error);
  REQUIRE_FALSE(administrator->query("ROLLBACK", soon()).back().failed());
  const std::string writes =
      "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE dlock%'";
  CHECK(eventually([&] { return server.text(writes) == "0\n"; }));
  CHECK(enters(*other, claim_on("k")));
}

TEST_CASE("MariaDB: the mode in which the server reads SQL does not matter") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer server({"--sql-mode=ORACLE,ANSI_QUOTES,NO_BACKSLASH_ESCAPES"});
  const auto store = store_at(server.address(false)), other = store_at(server.address(false));
  const Claim claim = claim_on("k"), next = claim_on("k");
  granted(*store, claim);
  queue_up(*other, next);
  CHECK(release(*store, claim) == Released::yes);
  CHECK(enters(*other, next));
}

TEST_CASE("MariaDB: no option file makes a record that is there look like one just made") {
  if (is_missing<MariaDbServer>()) return;
  MariaDbServer& server = mariadb();
  const OptionFile file("return-found-rows=1\nreconnect=1\n");
  const auto first = open_mysql(server.address(false), "mariadb");
  const auto second = open_mysql(server.address(false), "mariadb");
  const Snapshot none = second->read("dlock:k:k", nullptr, soon());
  const auto made = first->write("dlock:k:k", first->read("dlock:k:k", nullptr, soon()),
                                 Update{"of the first"}, soon());
  REQUIRE(std::holds_alternative<Version>(made));
  const auto late = second->write("dlock:k:k", none, Update{"of the second"}, soon());
  REQUIRE(std::holds_alternative<Snapshot>(late));
  CHECK(std::get<Snapshot>(late).text == "of the first");
}

}  // namespace dlock::test
