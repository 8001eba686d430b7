#include "contract/deployment.hpp"

#include <cstdlib>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "cas/cas_store.hpp"
#include "contract/engines.hpp"
#include "contract/in_step.hpp"
#include "doctor/rights.hpp"
#include "etcd/etcd_backend.hpp"
#include "quorum/quorum_store.hpp"
#include "quorum/threaded_node_clients.hpp"
#include "redis/redis_member.hpp"
#include "redis/redis_store.hpp"
#include "redis/sentinel_resolver.hpp"
#include "sql/mysql_backend.hpp"
#include "sql/postgres_backend.hpp"
#include "support/cluster.hpp"
#include "support/etcd_servers.hpp"
#include "support/eventually.hpp"
#include "support/mariadb_server.hpp"
#include "support/postgres_server.hpp"
#include "support/sentinels.hpp"
#include "support/tls_redis.hpp"
#include "support/vouching.hpp"

namespace dlock::test {
namespace {

class OneServer final : public RedisDeployment {
 public:
  explicit OneServer(bool by_tcp = false) : by_tcp_(by_tcp), server_({by_tcp, false, "", {}, {}}) {}

  StorePtr open() override {
    return redis_store(endpoint_at(by_tcp_ ? Address{"", server_.port()} : server_.address()));
  }
  std::vector<RedisServer*> servers() override { return {&server_}; }
  std::vector<RedisServer*> servers_of(const LockKey&) override { return {&server_}; }

 private:
  bool by_tcp_;
  RedisServer server_;
};

class BehindSentinels final : public RedisDeployment {
 public:
  StorePtr open() override {
    const SentinelTarget target = fleet_.target();
    return std::make_unique<RedisStore>(
        std::make_unique<SentinelResolver>(target.sentinels, target.master_name, target.master),
        RedisTerms{"dlock:", 1, true});
  }
  std::vector<RedisServer*> servers() override { return {&fleet_.master()}; }
  std::vector<RedisServer*> servers_of(const LockKey&) override { return {&fleet_.master()}; }

 private:
  // A master that stands still is no dead one here.
  Sentinels fleet_{{1, 3, {}, {"sentinel down-after-milliseconds locks 600000"}, ""}};
};

class UnderTls final : public RedisDeployment {
 public:
  StorePtr open() override { return redis_store(redis_.endpoint()); }
  std::vector<RedisServer*> servers() override { return {&redis_.server}; }
  std::vector<RedisServer*> servers_of(const LockKey&) override { return {&redis_.server}; }

 private:
  TlsRedis redis_;
};

/// A user who may do what `dlock doctor --acl` prints, and no more.
class Restricted final : public RedisDeployment {
 public:
  Restricted() {
    endpoint_.user = "dlock";
    endpoint_.password = "pw";
    std::istringstream line(acl_line(DoctorOptions{}, endpoint_));
    std::vector<std::string> words;
    for (std::string word; line >> word;) words.push_back(word == ">PASSWORD" ? ">pw" : word);
    if (server_.command(words).text != "OK") throw Error(ErrorKind::bug, "ACL: " + line.str());
  }
  StorePtr open() override { return redis_store(endpoint_); }
  std::vector<RedisServer*> servers() override { return {&server_}; }
  std::vector<RedisServer*> servers_of(const LockKey&) override { return {&server_}; }

 private:
  RedisServer server_;
  Endpoint endpoint_ = endpoint_at(server_.address());
};

class OnCluster final : public RedisDeployment {
 public:
  StorePtr open() override { return cluster_.open(); }
  std::vector<RedisServer*> servers() override {
    return {&cluster_.node(0), &cluster_.node(1), &cluster_.node(2)};
  }
  std::vector<RedisServer*> servers_of(const LockKey& key) override {
    return {&cluster_.node(Cluster::master_of(key.text))};
  }

 private:
  Cluster cluster_;
};

/// Three servers of which two decide.
class Quorum final : public RedisDeployment {
 public:
  StorePtr open() override {
    auto nodes = std::make_unique<ThreadedNodeClients>([this] {
      std::vector<std::unique_ptr<Member>> members;
      for (RedisServer* each : servers()) {
        members.push_back(std::make_unique<RedisMember>(endpoint_at(each->address()), "dlock:"));
      }
      return members;
    });
    return std::make_unique<QuorumStore>(std::make_unique<NodesInStep>(std::move(nodes)));
  }
  std::vector<RedisServer*> servers() override { return {&a_, &b_, &c_}; }
  bool by_majority() const override { return true; }
  std::vector<RedisServer*> servers_of(const LockKey&) override { return {&a_, &b_}; }

 private:
  RedisServer a_, b_, c_;
};

/// A table in a database, made anew by the first client of each test.
class InDatabase : public Deployment {
 public:
  std::string litter() override {
    std::string names;
    for (const KeyState& state : open()->inspect({{}, {"*"}}, soon())) {
      names += state.key.text + "\n";
    }
    return names;
  }
  /// A session ends some time after its client has closed it.
  void await_waiters(const std::string& key, std::size_t count) override {
    const auto store = open();
    REQUIRE(eventually([&] { return state_of(*store, key).waiters.size() == count; }));
  }
  virtual void reset() = 0;
};

class InPostgres final : public InDatabase {
 public:
  static constexpr const char* skipped = "skipped: postgresql is not installed";

  explicit InPostgres(bool by_tcp) : server_({by_tcp, {}, ""}) {
    terms_.url = by_tcp ? server_.tcp_url("postgres") : server_.url();
    terms_.shown = "postgres://of-the-test/postgres";
  }

  static bool is_installed() { return PostgresServer::is_installed(); }
  StorePtr open() override {
    return std::make_unique<CasStore>(std::make_unique<PostgresBackend>(terms_), "dlock:");
  }
  /// Every client needs the table, and waits for it.
  void freeze(const LockKey&) override {
    server_.query(std::string(postgres_schema()) + "; COMMIT; BEGIN; LOCK TABLE dlock");
  }
  void thaw() override { server_.query("ROLLBACK"); }
  void reset() override { server_.query("ROLLBACK; DROP TABLE IF EXISTS dlock"); }

 private:
  PostgresServer server_;
  PostgresTerms terms_;
};

class InMariaDb final : public InDatabase {
 public:
  static constexpr const char* skipped = "skipped: mariadb-server is not installed";

  explicit InMariaDb(bool by_tcp) : by_tcp_(by_tcp) {}

  static bool is_installed() { return MariaDbServer::is_installed(); }
  StorePtr open() override {
    return std::make_unique<CasStore>(
        std::make_unique<MysqlBackend>(server_.address(by_tcp_), "mariadb://of-the-test/locks"),
        "dlock:");
  }
  void freeze(const LockKey&) override {
    server_.query(std::string(mysql_schema()) + "; LOCK TABLES dlock WRITE");
  }
  void thaw() override { server_.query("UNLOCK TABLES"); }
  void reset() override { server_.query("UNLOCK TABLES; DROP TABLE IF EXISTS dlock"); }

 private:
  bool by_tcp_;
  MariaDbServer server_;
};

/// An etcd of so many members.
template <int members>
class InEtcd final : public InDatabase {
 public:
  static constexpr const char* skipped = "skipped: etcd-server is not installed";

  explicit InEtcd(bool) : servers_({members, {}, {}}) {}

  static bool is_installed() { return EtcdServers::is_installed(); }
  StorePtr open() override {
    return std::make_unique<CasStore>(
        std::make_unique<EtcdBackend>(servers_.endpoints(), "etcd://of-the-test"), "dlock:");
  }
  void freeze(const LockKey&) override {
    for (std::size_t i = 0; i < members; ++i) servers_.stop(i);
  }
  void thaw() override {
    for (std::size_t i = 0; i < members; ++i) servers_.cont(i);
    servers_.await_leader();
  }
  /// Lives that no entry has, too.
  std::string litter() override {
    std::string names = InDatabase::litter();
    for (const std::string& key : servers_.keys()) {
      if (key.find('\n') != std::string::npos) names += key + "\n";
    }
    return names;
  }
  /// Leases last whole seconds, two at least, and end up to a second late.
  milliseconds longest(milliseconds span) const override {
    const auto whole = std::chrono::ceil<std::chrono::seconds>(span);
    return std::max(whole, std::chrono::seconds(2)) + milliseconds(1500);
  }
  milliseconds time_to_confirm(milliseconds ttl) const override { return ttl; }
  void reset() override { servers_.clear(); }

 private:
  EtcdServers servers_;
};

template <typename Kind>
std::shared_ptr<Deployment> shared_database(bool by_tcp) {
  // ctest knows the sentence, and counts the test as skipped.
  if (!Kind::is_installed()) throw Error(ErrorKind::host_refused, Kind::skipped);
  static const auto one = std::make_shared<Kind>(by_tcp);
  one->reset();
  return one;
}

template <typename Kind>
std::shared_ptr<Deployment> shared() {
  static const auto one = std::make_shared<Kind>();
  for (RedisServer* server : one->servers()) {
    server->command({"FLUSHALL"});
    if (std::is_same_v<Kind, Quorum>) vouch_for(*server);
  }
  return one;
}

}  // namespace

milliseconds Deployment::time_to_confirm(milliseconds ttl) const {
  return std::min(ttl, milliseconds(by_majority() ? 2000 : 6000));
}

void RedisDeployment::freeze(const LockKey& key) {
  frozen_ = servers_of(key);
  for (RedisServer* server : frozen_) server->stop();
}

void RedisDeployment::thaw() {
  for (RedisServer* server : frozen_) server->cont();
  frozen_.clear();
}

void RedisDeployment::lose_on_one(const LockKey& key) {
  if (by_majority()) servers().front()->command({"DEL", "dlock:{" + key.text + "}"});
}

void RedisDeployment::await_waiters(const std::string& key, std::size_t count) {
  for (const RedisServer* server : servers()) {
    REQUIRE(eventually([&] {
      return server->command({"PUBSUB", "CHANNELS", "dlock:{" + key + "}*"}).items.size() <= count;
    }));
  }
}

std::string RedisDeployment::litter() {
  std::string names;
  // Of several servers a majority has answered; the others may still be about to.
  eventually(
      [&] {
        names.clear();
        for (const RedisServer* server : servers()) names += litter_of(*server);
        return names.empty() || servers().size() == 1;
      },
      milliseconds(3000));
  return names;
}

std::shared_ptr<Deployment> new_deployment() {
  const char* variable = std::getenv("DLOCK_TEST_DEPLOYMENT");
  const std::string name = variable == nullptr ? "" : variable;
  if (name.empty()) return std::make_shared<OneServer>();
  if (name == "tcp") return std::make_shared<OneServer>(true);
  if (name == "tls") return shared<UnderTls>();
  if (name == "acl") return shared<Restricted>();
  if (name == "sentinel") return shared<BehindSentinels>();
  if (name == "cluster") return shared<OnCluster>();
  if (name == "quorum") return shared<Quorum>();
  if (name == "postgres") return shared_database<InPostgres>(false);
  if (name == "postgres-tcp") return shared_database<InPostgres>(true);
  if (name == "mariadb") return shared_database<InMariaDb>(false);
  if (name == "mariadb-tcp") return shared_database<InMariaDb>(true);
  if (name == "etcd") return shared_database<InEtcd<1>>(false);
  if (name == "etcd-cluster") return shared_database<InEtcd<3>>(false);
  throw Error(ErrorKind::usage, "no such deployment: " + name);
}

}  // namespace dlock::test
