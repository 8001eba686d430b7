#include "cli/lied_to.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>

#include "cli/lies_of_lengths.hpp"
#include "support/cluster.hpp"
#include "support/etcd_servers.hpp"
#include "support/fleet.hpp"
#include "support/mariadb_server.hpp"
#include "support/postgres_server.hpp"
#include "support/recorded_process.hpp"
#include "support/sentinels.hpp"
#include "support/zookeeper_servers.hpp"

namespace dlock::test {
namespace {

std::string at_port(const Address& address) { return "127.0.0.1:" + std::to_string(address.port); }

class OneRedis final : public LiedTo {
 public:
  std::string direct_url() const override { return server_.url(); }
  std::vector<Address> servers() const override { return {server_.address()}; }
  std::string url(const std::vector<Address>& relayed) const override { return relayed[0].url(); }
  void clear() const override { server_.command({"FLUSHALL"}); }

 private:
  RedisServer server_;
};

/// A Sentinel and its master; the relay is in front of both, and the Sentinel names the relay.
class SentinelLiar final : public LiedTo {
 public:
  std::string direct_url() const override { return fleet_.url(); }
  std::vector<Address> servers() const override {
    return {{"", fleet_.sentinel(0).port()}, {"", fleet_.master().port()}};
  }
  std::string url(const std::vector<Address>& relayed) const override {
    return "redis+sentinel://" + at_port(relayed[0]) + "/" + Sentinels::master_name;
  }
  void clear() const override { fleet_.master().command({"FLUSHALL"}); }

 private:
  mutable Sentinels fleet_{{0, 1, {}, {"sentinel down-after-milliseconds locks 600000"}, ""}};
};

class ClusterLiars final : public LiedTo {
 public:
  std::string direct_url() const override { return cluster_.url(); }
  std::vector<Address> servers() const override {
    return {{"", cluster_.node(0).port()},
            {"", cluster_.node(1).port()},
            {"", cluster_.node(2).port()}};
  }
  std::string url(const std::vector<Address>& relayed) const override {
    return "redis+cluster://" + at_port(relayed[0]) + "," + at_port(relayed[1]);
  }
  void clear() const override {
    for (std::size_t i = 0; i < 3; ++i) cluster_.node(i).command({"FLUSHALL"});
  }
  std::string key(char letter) const override {
    return Cluster::key_of(static_cast<std::size_t>(letter % 3), letter);
  }

 private:
  Cluster cluster_;
};

/// Three independent servers; the first one lies.
class OneOfThree final : public LiedTo {
 public:
  std::string direct_url() const override {
    return side_by_side({servers_[0].url(), servers_[1].url(), servers_[2].url()});
  }
  std::vector<Address> servers() const override {
    return {servers_[0].address(), servers_[1].address(), servers_[2].address()};
  }
  std::string url(const std::vector<Address>& relayed) const override {
    return side_by_side({relayed[0].url(), relayed[1].url(), relayed[2].url()});
  }
  void clear() const override {
    for (const RedisServer& each : servers_) {
      each.command({"FLUSHALL"});
      record_process_of(each);
    }
  }
  LiePlan plan() const override {
    LiePlan plan;
    plan.liars = 1;
    return plan;
  }
  std::size_t needed() const override { return 2; }

 private:
  RedisServer servers_[3];
};

/// All threads share one server, as it starts slowly; so each run has its own keys.
template <typename Server, ReplyEnd ends, WithLengths with_lengths>
class SharedLiar : public LiedTo {
 public:
  std::string key(char letter) const override {
    return std::string(1, letter) + std::to_string(number_);
  }
  void clear() const override { number_ = ++last_number; }
  LiePlan plan() const override {
    LiePlan plan;
    plan.ends = ends;
    return plan;
  }
  std::vector<Lie> lies(const Address& other_server) const override {
    auto all = blind_lies(other_server);
    add_lies_of_lengths(with_lengths, all);
    return all;
  }

 private:
  static inline std::atomic<int> last_number = 0;
  mutable int number_ = ++last_number;
};

/// A server whose URL is a scheme and an address.
template <typename Servers, ReplyEnd ends, WithLengths with_lengths>
class PlainLiar : public SharedLiar<Servers, ends, with_lengths> {
 public:
  std::string direct_url() const override { return server().url(); }
  std::vector<Address> servers() const override { return {{"", server().endpoint(0).port}}; }
  std::string url(const std::vector<Address>& relayed) const override {
    const std::string direct = direct_url();
    return direct.substr(0, direct.find("://") + 3) + at_port(relayed[0]);
  }

 private:
  static Servers& server() {
    static Servers one;
    return one;
  }
};

using EtcdLiar = PlainLiar<EtcdServers, ReplyEnd::unread, with_http_lengths>;

class ZooKeeperLiar final : public PlainLiar<ZooKeeperServers, ReplyEnd::jute, with_jute_lengths> {
 public:
  std::vector<Lie> lies(const Address& other_server) const override {
    auto all = PlainLiar::lies(other_server);
    for (Lie& each : zookeeper_lies()) all.push_back(std::move(each));
    return all;
  }
};

class PostgresLiar final
    : public SharedLiar<PostgresServer, ReplyEnd::unread, with_postgres_lengths> {
 public:
  std::string direct_url() const override { return server().tcp_url("postgres"); }
  std::vector<Address> servers() const override { return {{"", server().port()}}; }
  std::string url(const std::vector<Address>& relayed) const override {
    std::string text = direct_url();
    const std::string port = ":" + std::to_string(server().port());
    return text.replace(text.find(port), port.size(), ":" + std::to_string(relayed[0].port));
  }

 private:
  static PostgresServer& server() {
    static PostgresServer one({true, {}, "local all all trust\nhost all all 127.0.0.1/32 trust\n"});
    return one;
  }
};

class MariaDbLiar final : public SharedLiar<MariaDbServer, ReplyEnd::unread, with_mariadb_lengths> {
 public:
  std::string direct_url() const override { return server().url(); }
  std::vector<Address> servers() const override { return {{server().address(false).socket_path}}; }
  std::string url(const std::vector<Address>& relayed) const override {
    std::string text = direct_url();
    const auto at = text.find("socket=") + 7;
    return text.substr(0, at) + relayed[0].path;
  }

 private:
  static MariaDbServer& server() {
    static MariaDbServer one;
    return one;
  }
};

template <typename Kind, typename Server>
std::unique_ptr<LiedTo> if_installed() {
  if (!Server::is_installed()) return nullptr;
  auto liar = std::make_unique<Kind>();
  // A server ends with the thread that started it, so the thread of the test must start it.
  liar->direct_url();
  return liar;
}

}  // namespace

bool tells_all_lies() { return std::getenv("DLOCK_TEST_LIES_OF") != nullptr; }

std::string lied_to_kind() {
  const char* kind = std::getenv("DLOCK_TEST_LIES_OF");
  return kind == nullptr ? "redis" : kind;
}

std::unique_ptr<LiedTo> new_lied_to(const std::string& kind) {
  if (kind == "sentinel") return std::make_unique<SentinelLiar>();
  if (kind == "cluster") return std::make_unique<ClusterLiars>();
  if (kind == "majority") return std::make_unique<OneOfThree>();
  if (kind == "etcd") return if_installed<EtcdLiar, EtcdServers>();
  if (kind == "postgres") return if_installed<PostgresLiar, PostgresServer>();
  if (kind == "mariadb") return if_installed<MariaDbLiar, MariaDbServer>();
  if (kind == "zookeeper") return if_installed<ZooKeeperLiar, ZooKeeperServers>();
  return std::make_unique<OneRedis>();
}

}  // namespace dlock::test
