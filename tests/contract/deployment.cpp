#include "contract/deployment.hpp"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "doctor/redis_rights.hpp"
#include "quorum/node_threads.hpp"
#include "quorum/quorum_store.hpp"
#include "redis/redis_connection.hpp"
#include "redis/redis_store.hpp"
#include "support/cluster.hpp"
#include "support/sentinels.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {
namespace {

/// Node clients that return replies only after all nodes have answered. A quorum answers as soon as
/// a majority has. The next client of a test would otherwise overtake the first one at the slow
/// node, and split the votes of two requests that the test means to be in order.
///
/// All clients see this host's clock. Otherwise, if two waiters ask within the measurement error of
/// the servers' clocks, the second might be served first.
class NodesInStep final : public NodeClients {
 public:
  explicit NodesInStep(std::unique_ptr<NodeClients> nodes)
      : nodes_(std::move(nodes)), owed_(nodes_->size()) {}

  std::size_t size() const override { return nodes_->size(); }
  std::string name(std::size_t member) const override { return nodes_->name(member); }
  std::uint64_t ask(std::size_t member, NodeRequest request, Deadline deadline) override;
  bool has_sent_releases(std::size_t member) const override {
    return nodes_->has_sent_releases(member);
  }
  std::optional<NodeReply> hear(Deadline until, int cancel_fd) override;
  void begin_anew() override;

 private:
  bool any_owes() const;

  std::unique_ptr<NodeClients> nodes_;
  std::vector<std::uint64_t> owed_;  ///< the last request to each node; 0 if it was answered
  std::deque<NodeReply> heard_;
};

ClockReading clock_of_this_host() {
  static const auto booted_at = wall_now().time_since_epoch() - BootClock::now().time_since_epoch();
  const Deadline now = BootClock::now();
  return {std::chrono::floor<microseconds>(booted_at + now.time_since_epoch()), now, now};
}

std::uint64_t NodesInStep::ask(std::size_t member, NodeRequest request, Deadline deadline) {
  return owed_[member] = nodes_->ask(member, std::move(request), deadline);
}

std::optional<NodeReply> NodesInStep::hear(Deadline until, int cancel_fd) {
  // A client that only collects arrived replies waits for the other nodes, too; a stalled node
  // costs it this time at each call.
  constexpr milliseconds least_for_others{500};
  const auto others = std::max(until, later(BootClock::now(), least_for_others));
  while (any_owes()) {
    auto reply = nodes_->hear(others, cancel_fd);
    if (!reply) break;
    if (reply->request == owed_[reply->node]) owed_[reply->node] = 0;
    if (reply->standing.clock) reply->standing.clock = clock_of_this_host();
    heard_.push_back(std::move(*reply));
  }
  if (heard_.empty()) return nodes_->hear(until, cancel_fd);
  NodeReply first = std::move(heard_.front());
  heard_.pop_front();
  return first;
}

void NodesInStep::begin_anew() {
  nodes_->begin_anew();
  owed_.assign(size(), 0);
  heard_.clear();
}

bool NodesInStep::any_owes() const {
  return std::any_of(owed_.begin(), owed_.end(), [](std::uint64_t owed) { return owed != 0; });
}

class OneServer final : public RedisDeployment {
 public:
  StorePtr open() override { return redis_store(endpoint_at(server_.address())); }
  std::vector<RedisServer*> servers() override { return {&server_}; }
  std::vector<RedisServer*> servers_of(const LockKey&) override { return {&server_}; }

 private:
  RedisServer server_;
};

class BehindSentinels final : public RedisDeployment {
 public:
  StorePtr open() override {
    const SentinelTarget target = fleet_.target();
    return std::make_unique<RedisStore>(
        EndpointResolver(target.sentinels, target.master_name, target.master),
        RedisStoreOptions{"dlock:", 1, true});
  }
  std::vector<RedisServer*> servers() override { return {&fleet_.master()}; }
  std::vector<RedisServer*> servers_of(const LockKey&) override { return {&fleet_.master()}; }

 private:
  Sentinels fleet_{{.replicas = 1}};
};

/// A server under TLS, and a user with exactly the rights that `dlock doctor --acl` prints.
class UnderTls final : public RedisDeployment {
 public:
  UnderTls() {
    endpoint_.user = "dlock";
    endpoint_.password = "pw";
    std::istringstream line(acl_line(DoctorOptions{}, endpoint_));
    std::vector<std::string> words;
    for (std::string word; line >> word;) words.push_back(word == ">PASSWORD" ? ">pw" : word);
    if (redis_.server.command(words).text != "OK") {
      throw Error(ErrorKind::bug, "ACL: " + line.str());
    }
  }
  StorePtr open() override { return redis_store(endpoint_); }
  std::vector<RedisServer*> servers() override { return {&redis_.server}; }
  std::vector<RedisServer*> servers_of(const LockKey&) override { return {&redis_.server}; }

 private:
  TlsRedis redis_;
  Endpoint endpoint_ = redis_.endpoint();
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

/// Three servers; two of them decide.
class Quorum final : public RedisDeployment {
 public:
  StorePtr open() override {
    auto nodes = std::make_unique<ThreadedNodeClients>([this] {
      std::vector<std::unique_ptr<Member>> members;
      for (RedisServer* each : servers()) {
        members.push_back(std::make_unique<RedisMember>(endpoint_at(each->address())));
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

template <typename Kind>
std::shared_ptr<Deployment> shared() {
  static const auto one = std::make_shared<Kind>();
  for (RedisServer* server : one->servers()) {
    server->command({"FLUSHALL"});
    if (std::is_same_v<Kind, Quorum>) record_process_of(*server);
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
  // A majority of the servers has answered; the others may still be busy.
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
  if (name == "tls") return shared<UnderTls>();
  if (name == "sentinel") return shared<BehindSentinels>();
  if (name == "cluster") return shared<OnCluster>();
  if (name == "quorum") return shared<Quorum>();
  if (auto database = database_deployment(name)) return database;
  throw Error(ErrorKind::usage, "no such deployment: " + name);
}

}  // namespace dlock::test
