#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "cas/cas_store.hpp"
#include "contract/engines.hpp"
#include "etcd/etcd_backend.hpp"
#include "k8s/kube_backend.hpp"
#include "memcached/memcached.hpp"
#include "s3/s3_backend.hpp"
#include "sql/sql_backend.hpp"
#include "support/etcd_servers.hpp"
#include "support/kube_servers.hpp"
#include "support/memcached_server.hpp"
#include "support/pgbouncer.hpp"
#include "support/s3_server.hpp"
#include "support/stretched.hpp"
#include "support/tls_databases.hpp"
#include "support/zookeeper_servers.hpp"
#include "zookeeper/zookeeper_backend.hpp"

namespace dlock::test {
namespace {

/// A server that runs as long as `kept` lives, and the address for its clients.
template <typename Server, typename At>
struct Place {
  std::shared_ptr<void> kept;
  Server& server;
  At at;
  bool pooled = false;
};
using PostgresPlace = Place<PostgresServer, std::string>;
using MariaDbPlace = Place<MariaDbServer, MysqlAddress>;

/// A table in a database, recreated by the first client of each test.
class InDatabase : public Deployment {
 public:
  std::string litter() override {
    std::string names;
    for (const KeyState& state : open()->inspect({{}, {"*"}}, soon())) {
      names += state.key.text + "\n";
    }
    return names;
  }
  /// A session ends some time after its client has closed it. If a client could not revoke its etcd
  /// lease in the short time that it takes for that, the lease expires after half a minute and an
  /// election.
  void await_waiters(const std::string& key, std::size_t count) override {
    if (!sees_deaths()) return;
    const auto store = open();
    REQUIRE(eventually([&] { return state_of(*store, key).waiters.size() == count; },
                       milliseconds(90'000)));
  }
  virtual void reset() = 0;
};

class InPostgres final : public InDatabase {
 public:
  explicit InPostgres(PostgresPlace place) : place_(std::move(place)) {}

  StorePtr open() override {
    return std::make_unique<CasStore>(open_postgres(place_.at, "postgres://of-the-test/postgres"),
                                      "dlock:");
  }
  /// Every client needs the table and waits for its lock.
  void freeze(const LockKey&) override {
    place_.server.query(create_statement(postgres_dialect) + "; COMMIT; BEGIN; LOCK TABLE dlock");
  }
  void thaw() override { place_.server.query("ROLLBACK"); }
  void reset() override { place_.server.query("ROLLBACK; DROP TABLE IF EXISTS dlock"); }
  /// Through a pooler, no client can see the connection of another.
  bool sees_deaths() const override { return !place_.pooled; }

 private:
  PostgresPlace place_;
};

class InMariaDb final : public InDatabase {
 public:
  explicit InMariaDb(MariaDbPlace place) : place_(std::move(place)) {}

  StorePtr open() override {
    return std::make_unique<CasStore>(open_mysql(place_.at, "mariadb://of-the-test/locks"),
                                      "dlock:");
  }
  void freeze(const LockKey&) override {
    place_.server.query(create_statement(mysql_dialect) + "; LOCK TABLES dlock WRITE");
  }
  void thaw() override { place_.server.query("UNLOCK TABLES"); }
  void reset() override { place_.server.query("UNLOCK TABLES; DROP TABLE IF EXISTS dlock"); }

 private:
  MariaDbPlace place_;
};

/// An etcd with three members.
class InEtcd final : public InDatabase {
 public:
  StorePtr open() override { return etcd_store(servers_.endpoints()); }
  void freeze(const LockKey&) override {
    for (std::size_t i = 0; i < servers_.size(); ++i) servers_.stop(i);
  }
  void thaw() override {
    for (std::size_t i = 0; i < servers_.size(); ++i) servers_.cont(i);
    servers_.await_service();
  }
  /// Includes liveness entries that no lock refers to.
  std::string litter() override {
    std::string names = InDatabase::litter();
    for (const std::string& key : servers_.keys()) {
      if (key.find('\n') != std::string::npos) names += key + "\n";
    }
    return names;
  }
  /// Leases last whole seconds, two at least, and expire up to a second late.
  milliseconds longest(milliseconds span) const override {
    const auto whole = std::chrono::ceil<std::chrono::seconds>(span);
    return std::max(whole, std::chrono::seconds(2)) + milliseconds(1500);
  }
  milliseconds time_to_confirm(milliseconds ttl) const override { return ttl; }
  void reset() override { servers_.clear(); }

 private:
  EtcdServers servers_{{.members = 3}};
};

/// An ensemble of three servers. One that a busy machine stalls for less than 30 s stays in it.
class InZooKeeper final : public InDatabase {
 public:
  StorePtr open() override {
    return std::make_unique<CasStore>(
        std::make_unique<ZooKeeperBackend>(servers_.endpoints(), "zk://of-the-test", "",
                                           "dlock:", session_),
        "dlock:");
  }
  void freeze(const LockKey&) override {
    for (std::size_t i = 0; i < servers_.size(); ++i) servers_.stop(i);
  }
  void thaw() override {
    for (std::size_t i = 0; i < servers_.size(); ++i) servers_.cont(i);
    servers_.await_service();
  }
  /// Includes the nodes of clients.
  std::string litter() override {
    std::string names = InDatabase::litter();
    for (const std::string& node : servers_.nodes()) {
      if (node.find("/b-") != std::string::npos) names += node + "\n";
    }
    return names;
  }
  /// A hold also lasts as long as the session of its store.
  milliseconds longest(milliseconds span) const override {
    return std::max(span, session_ + milliseconds(200)) + milliseconds(1000);
  }
  void reset() override { servers_.clear(); }

 private:
  /// An idle client sends no heartbeats, and on a busy machine it may be idle that long.
  const milliseconds session_ = std::min(stretched(milliseconds(4000)), milliseconds(12'000));
  ZooKeeperServers servers_{{.servers = 3, .lines = {"syncLimit=300"}}};
};

/// One API server of Kubernetes.
class InKubernetes final : public InDatabase {
 public:
  InKubernetes() {
    for (const auto& [name, value] : servers_.environment()) setenv(name.c_str(), value.c_str(), 1);
  }

  StorePtr open() override {
    return std::make_unique<CasStore>(
        std::make_unique<KubeBackend>("", "", "dlock:", "k8s://of-the-test"), "dlock:");
  }
  void freeze(const LockKey&) override { servers_.stop(); }
  void thaw() override { servers_.cont(); }
  bool sees_deaths() const override { return false; }
  /// A lease lasts two seconds more than the holder counts on, by a clock of whole seconds.
  milliseconds longest(milliseconds span) const override { return span + milliseconds(3500); }
  milliseconds clock_unsure() const override { return milliseconds(2000); }
  void reset() override { servers_.clear(); }

 private:
  KubeServers servers_{};
};

class InMemcached final : public InDatabase {
 public:
  StorePtr open() override {
    return std::make_unique<CasStore>(
        std::make_unique<MemcachedBackend>(server_.endpoint(), "memcached://of-the-test"),
        "dlock:");
  }
  void freeze(const LockKey&) override { server_.stop(); }
  void thaw() override { server_.cont(); }
  std::string litter() override {
    const std::string prefix = "dlock:k:";
    const auto store = open();
    std::string names;
    for (const std::string& record : server_.records()) {
      const bool is_lock = record.starts_with(prefix);
      if (is_lock && !state_of(*store, record.substr(prefix.size())).in_use()) continue;
      names += record + "\n";
    }
    return names;
  }
  bool sees_deaths() const override { return false; }
  bool lists() const override { return false; }
  milliseconds clock_unsure() const override { return memcached_clock_unsure; }
  /// Leases are longer because its clock may be too old, and then seem longer to others once more.
  milliseconds longest(milliseconds span) const override {
    return span + 2 * memcached_clock_unsure;
  }
  void reset() override { server_.clear(); }

 private:
  MemcachedServer server_;
};

/// A bucket. Its clock shows whole seconds, and waiters look every second.
class InS3 final : public InDatabase {
 public:
  StorePtr open() override {
    return std::make_unique<CasStore>(
        std::make_unique<S3Backend>(server_.place(), "s3://of-the-test", "dlock:"), "dlock:");
  }
  void freeze(const LockKey&) override { server_.stop(0); }
  void thaw() override { server_.cont(0); }
  bool sees_deaths() const override { return false; }
  /// The record keeps each lease two seconds longer, and the last second may be a whole one.
  milliseconds longest(milliseconds span) const override { return span + milliseconds(4000); }
  milliseconds clock_unsure() const override { return milliseconds(2000); }
  void reset() override { server_.clear(); }

 private:
  S3Server server_;
};

template <typename Server>
struct DatabaseUnderTls {
  TestCa ca;
  TlsDatabase<Server> database{ca, ca.issue("server", TlsDatabase<Server>::names)};
};

PostgresPlace postgres_under_tls() {
  const auto place = std::make_shared<DatabaseUnderTls<PostgresServer>>();
  return {place, place->database.server, place->database.url(place->ca.file())};
}

MariaDbPlace mariadb_under_tls() {
  const auto place = std::make_shared<DatabaseUnderTls<MariaDbServer>>();
  return {place, place->database.server, place->database.address(place->ca.file())};
}

/// Behind a pooler that lends a session for each transaction, and has few.
PostgresPlace pooled_postgres() {
  struct Pooled {
    PostgresServer server{};
    PgBouncer pooler{server, "transaction", 4};
  };
  const auto place = std::make_shared<Pooled>();
  return {place, place->server, place->pooler.url(), true};
}

/// The deployment that all tests of this process share.
template <typename Server, typename Start>
std::shared_ptr<Deployment> shared(Start start) {
  // ctest recognizes this text and counts the test as skipped.
  if (!Server::is_installed()) {
    throw Error(ErrorKind::host_refused,
                std::string("skipped: ") + Server::package + " is not installed");
  }
  static const auto one = start();
  one->reset();
  return one;
}

}  // namespace

std::shared_ptr<Deployment> database_deployment(const std::string& name) {
  if (name == "postgres") {
    return shared<PostgresServer>(
        [] { return std::make_shared<InPostgres>(postgres_under_tls()); });
  }
  if (name == "pgbouncer") {
    return shared<PgBouncer>([] { return std::make_shared<InPostgres>(pooled_postgres()); });
  }
  if (name == "mariadb") {
    return shared<MariaDbServer>([] { return std::make_shared<InMariaDb>(mariadb_under_tls()); });
  }
  if (name == "etcd") return shared<EtcdServers>([] { return std::make_shared<InEtcd>(); });
  if (name == "kubernetes") {
    return shared<KubeServers>([] { return std::make_shared<InKubernetes>(); });
  }
  if (name == "memcached") {
    return shared<MemcachedServer>([] { return std::make_shared<InMemcached>(); });
  }
  if (name == "zookeeper") {
    return shared<ZooKeeperServers>([] { return std::make_shared<InZooKeeper>(); });
  }
  if (name == "s3") return shared<S3Server>([] { return std::make_shared<InS3>(); });
  return nullptr;
}

}  // namespace dlock::test
