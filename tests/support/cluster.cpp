#include "support/cluster.hpp"

#include <algorithm>
#include <sstream>

#include "base/error.hpp"
#include "base/random.hpp"
#include "redis/cluster_router.hpp"
#include "redis/redis_store.hpp"

namespace dlock::test {
namespace {

constexpr std::size_t masters = 3;
constexpr int slot_count = 16384;

int first_slot_of(std::size_t master) {
  return static_cast<int>(master) * slot_count / static_cast<int>(masters);
}

void must(const RedisServer& server, const std::vector<std::string>& words) {
  const Reply reply = server.command(words);
  if (reply.kind == Reply::Kind::error) throw Error(ErrorKind::bug, words[0] + ": " + reply.text);
}

}  // namespace

Cluster::Cluster(ClusterOptions options) : options_(std::move(options)) {
  constexpr std::size_t bytes_of_an_id = 20;
  for (std::size_t i = 0; i < masters * (options_.replicas ? 2 : 1); ++i) {
    ids_.push_back(random_hex(bytes_of_an_id));
  }
  ports_.resize(ids_.size() * 2);
  start();
  if (!eventually([&] { return is_up(); }, milliseconds(60'000))) {
    throw Error(ErrorKind::unavailable, "the Cluster did not come up: " + node(0).log());
  }
}

void Cluster::start() {
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    RedisOptions options{
        .password = options_.password,
        .config = {"cluster-enabled yes", "cluster-config-file nodes.conf",
                   "cluster-port " + std::to_string(bus_port_of(i)), "cluster-node-timeout 15000",
                   "cluster-replica-validity-factor 0", "repl-diskless-sync-delay 0"},
        .port = port_of(i)};
    if (!options_.password.empty()) options.config.push_back("masterauth " + options_.password);
    options.files["nodes.conf"] = known_to(i);
    nodes_.push_back(std::make_unique<RedisServer>(std::move(options)));
  }
}

std::string Cluster::known_to(std::size_t self) const {
  std::ostringstream text;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const bool master = i < masters;
    text << ids_[i] << " 127.0.0.1:" << port_of(i) << '@' << bus_port_of(i);
    // Redis 8.0.2 fails an assertion at the first SPUBLISH if its nodes.conf names no shards.
    if (major_version_of_redis() >= 8) text << ",,shard-id=" << ids_[i % masters];
    text << ' ' << (i == self ? "myself," : "")
         << (master ? "master -" : "slave " + ids_[i - masters]) << " 0 0 " << i % masters + 1
         << " connected";
    if (master) text << ' ' << first_slot_of(i) << '-' << first_slot_of(i + 1) - 1;
    text << '\n';
  }
  text << "vars currentEpoch " << masters << " lastVoteEpoch 0\n";
  return text.str();
}

bool Cluster::is_up() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    const std::string info = node->command({"CLUSTER", "INFO"}).text;
    const std::string link = node->command({"INFO", "replication"}).text;
    return info.find("cluster_state:ok") != std::string::npos &&
           link.find("master_link_status:down") == std::string::npos;
  });
}

std::string Cluster::url(std::vector<std::size_t> seeds) const {
  std::string text = "redis+cluster://";
  if (!options_.password.empty()) text += ":" + options_.password + "@";
  for (const std::size_t i : seeds) {
    text += "127.0.0.1:" + std::to_string(node(i).port()) + (i == seeds.back() ? "" : ",");
  }
  return text;
}

void Cluster::notice_deaths_soon() const {
  for (const auto& each : nodes_) must(*each, {"CONFIG", "SET", "cluster-node-timeout", "1000"});
}

ClusterTarget Cluster::target() const { return std::get<ClusterTarget>(parse_server_url(url())); }

StorePtr Cluster::open() const {
  return std::make_unique<RedisStore>(
      std::make_unique<ClusterRouter>(target().seeds, RedisStoreOptions{}), RedisStoreOptions{});
}

std::string Cluster::key_of(std::size_t i, int number) {
  for (int attempt = 0;; ++attempt) {
    std::string key = "key" + std::to_string(attempt);
    if (master_of(key) == i && number-- == 0) return key;
  }
}

std::size_t Cluster::master_of(const std::string& key) {
  std::size_t master = masters - 1;
  while (slot_of(key) < first_slot_of(master)) --master;
  return master;
}

int Cluster::slot_of(const std::string& key) { return dlock::slot_of("dlock:{" + key + "}"); }

void Cluster::begin_move(int slot, std::size_t from, std::size_t to) const {
  const std::string number = std::to_string(slot);
  must(node(to), {"CLUSTER", "SETSLOT", number, "IMPORTING", ids_[from]});
  must(node(from), {"CLUSTER", "SETSLOT", number, "MIGRATING", ids_[to]});
}

void Cluster::move_keys(int slot, std::size_t from, std::size_t to) const {
  const Reply keys = node(from).command({"CLUSTER", "GETKEYSINSLOT", std::to_string(slot), "1000"});
  for (const Reply& key : keys.items) move_key(key.text, from, to);
}

void Cluster::move_key(const std::string& name, std::size_t from, std::size_t to) const {
  std::vector<std::string> migrate{"MIGRATE", "127.0.0.1", std::to_string(node(to).port()),
                                   name,      "0",         "5000"};
  if (!options_.password.empty()) migrate.insert(migrate.end(), {"AUTH", options_.password});
  must(node(from), migrate);
}

void Cluster::end_move(int slot, std::size_t from, std::size_t to) const {
  for (const std::size_t i : {to, from}) {
    must(node(i), {"CLUSTER", "SETSLOT", std::to_string(slot), "NODE", ids_[to]});
  }
}

void Cluster::move(int slot, std::size_t from, std::size_t to) const {
  begin_move(slot, from, to);
  move_keys(slot, from, to);
  end_move(slot, from, to);
}

bool Cluster::is_master(std::size_t i) const {
  return node(i).command({"INFO", "replication"}).text.find("role:master") != std::string::npos;
}

std::string ClusterScene::kept() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < masters; ++i) {
    for (const Reply& name : cluster.node(i).command({"KEYS", "*"}).items) {
      names.push_back(name.text);
    }
  }
  return sorted(std::move(names));
}

std::string ClusterScene::may_stay(std::vector<std::string> keys) const {
  for (std::string& key : keys) key = "dlock:{" + key + "}:fence";
  return sorted(std::move(keys));
}

}  // namespace dlock::test
