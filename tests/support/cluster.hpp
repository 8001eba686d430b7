#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "config/server_url.hpp"
#include "lock/store.hpp"
#include "support/scene.hpp"

namespace dlock::test {

struct ClusterOptions {
  bool replicas = false;  ///< one for each master
  std::string password{};
};

/// A Redis Cluster of three masters on free ports of 127.0.0.1: nodes 0, 1 and 2 have a third of
/// the slots each. With replicas, nodes 3, 4 and 5 replicate them in this order. The nodes.conf
/// files are written beforehand, so the cluster is up after the two seconds that Redis makes every
/// new master wait.
class Cluster {
 public:
  explicit Cluster(ClusterOptions options = {});

  /// The `redis+cluster://` URL of these nodes, with the password if there is one.
  std::string url(std::vector<std::size_t> seeds = {0, 1, 2}) const;
  ClusterTarget target() const;
  /// From now on, nodes declare a silent node dead after one second. The default of fifteen keeps a
  /// busy machine from causing a failover.
  void notice_deaths_soon() const;
  /// A client of the whole Cluster.
  StorePtr open() const;

  RedisServer& node(std::size_t i) const { return *nodes_.at(i); }
  std::size_t size() const { return nodes_.size(); }
  /// A key in a slot that master `i` had at first; each `number` gives another key.
  static std::string key_of(std::size_t i, int number = 0);
  static int slot_of(const std::string& key);
  /// The master that had the slot of `key` at first.
  static std::size_t master_of(const std::string& key);

  /// Resharding in the steps of redis-cli. Between begin and end the slot is migrating, with keys
  /// on both nodes.
  void begin_move(int slot, std::size_t from, std::size_t to) const;
  void move_keys(int slot, std::size_t from, std::size_t to) const;
  /// Moves one key by its full name.
  void move_key(const std::string& name, std::size_t from, std::size_t to) const;
  void end_move(int slot, std::size_t from, std::size_t to) const;
  void move(int slot, std::size_t from, std::size_t to) const;
  /// Whether node `i` is a serving master.
  bool is_master(std::size_t i) const;

 private:
  void start();
  bool is_up() const;
  std::string known_to(std::size_t self) const;
  int port_of(std::size_t i) const { return ports_.at(i).number(); }
  int bus_port_of(std::size_t i) const { return ports_.at(ids_.size() + i).number(); }

  ClusterOptions options_;
  std::vector<std::string> ids_;
  std::deque<UnusedPort> ports_;
  std::vector<std::unique_ptr<RedisServer>> nodes_;
};

/// Locks on a Cluster.
class ClusterScene final : public Scene {
 public:
  explicit ClusterScene(ClusterOptions options = {}) : cluster(std::move(options)) {}
  std::string url() const override { return url_.empty() ? cluster.url() : url_; }
  std::string kept() const override;
  std::string may_stay(std::vector<std::string> keys) const override;
  void go_through(const std::string& url) { url_ = url; }

  Cluster cluster;

 private:
  std::string url_;
};

}  // namespace dlock::test
