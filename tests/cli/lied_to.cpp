#include "cli/lied_to.hpp"

#include <cstdlib>

#include "support/cluster.hpp"
#include "support/fleet.hpp"
#include "support/recorded_process.hpp"
#include "support/sentinels.hpp"

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
  return std::make_unique<OneRedis>();
}

}  // namespace dlock::test
