#include "support/sentinels.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

std::string at(int port) { return "127.0.0.1 " + std::to_string(port); }

bool says_it_is_master(RedisServer& server) {
  const Reply role = server.command({"ROLE"});
  return !role.items.empty() && role.items[0].text == "master";
}

bool has_replicas(RedisServer& server, int count) {
  const Reply role = server.command({"ROLE"});
  return role.items.size() == 3 && static_cast<int>(role.items[2].items.size()) >= count;
}

}  // namespace

RedisOptions Sentinels::server_options() const {
  RedisOptions options{
      .tcp = true, .password = options_.password, .config = options_.server_config};
  options.config.emplace_back("repl-diskless-sync-delay 0");
  if (!options_.password.empty()) options.config.push_back("masterauth " + options_.password);
  return options;
}

Sentinels::Sentinels(SentinelOptions options) : options_(std::move(options)) {
  servers_.emplace_back(server_options());
  const int master_port = servers_.front().port();
  for (int i = 0; i < options_.replicas; ++i) {
    RedisOptions replica = server_options();
    replica.config.push_back("replicaof " + at(master_port));
    servers_.emplace_back(replica);
  }
  const std::string name = master_name;
  for (int i = 0; i < options_.sentinels; ++i) {
    RedisOptions sentinel{.tcp = true,
                          .sentinel = true,
                          .config = {"sentinel monitor " + name + " " + at(master_port) + " " +
                                         std::to_string(options_.sentinels / 2 + 1),
                                     "sentinel down-after-milliseconds " + name + " 600000",
                                     "sentinel failover-timeout " + name + " 3000",
                                     "sentinel parallel-syncs " + name + " 2"}};
    if (!options_.password.empty()) {
      sentinel.config.push_back("sentinel auth-pass " + name + " " + options_.password);
    }
    for (auto each = std::next(servers_.begin()); each != servers_.end(); ++each) {
      sentinel.config.push_back("sentinel known-replica " + name + " " + at(each->port()));
    }
    for (const auto& line : options_.sentinel_config) sentinel.config.push_back(line);
    sentinels_.emplace_back(sentinel);
  }
  const bool together = eventually([&] {
    return has_replicas(servers_.front(), options_.replicas) &&
           std::all_of(sentinels_.begin(), sentinels_.end(), [&](RedisServer& each) {
             const auto others = each.command({"SENTINEL", "sentinels", name});
             return static_cast<int>(others.items.size()) == options_.sentinels - 1 &&
                    each.command({"SENTINEL", "ckquorum", name}).text.starts_with("OK");
           });
  });
  if (!together) throw Error(ErrorKind::unavailable, "the sentinels did not find each other");
}

SentinelTarget Sentinels::target() const {
  return std::get<SentinelTarget>(parse_server_url(url()));
}

std::string Sentinels::url() const {
  std::string hosts;
  for (const RedisServer& each : sentinels_) {
    hosts += (hosts.empty() ? "" : ",") + std::string("127.0.0.1:") + std::to_string(each.port());
  }
  return "redis+sentinel://" + hosts + "/" + master_name;
}

int Sentinels::named_port(std::size_t i) const {
  const auto& sentinel = *std::next(sentinels_.begin(), static_cast<std::ptrdiff_t>(i));
  const auto named = sentinel.command({"SENTINEL", "get-master-addr-by-name", master_name});
  return named.items.size() == 2 ? std::stoi(named.items[1].text) : 0;
}

RedisServer& Sentinels::master() {
  const int port = named_port();
  for (RedisServer& each : servers_) {
    if (each.port() == port) return each;
  }
  throw Error(ErrorKind::unavailable, "the sentinels name nobody we know");
}

void Sentinels::kill_master() {
  RedisServer& dying = master();
  for (const RedisServer& each : sentinels_) {
    const Reply set =
        each.command({"SENTINEL", "SET", master_name, "down-after-milliseconds", "700"});
    if (set.text != "OK") throw Error(ErrorKind::bug, "SENTINEL SET: " + set.text);
  }
  dying.kill_hard();
}

std::vector<RedisServer*> Sentinels::replicas() {
  std::vector<RedisServer*> all;
  for (RedisServer& each : servers_) {
    if (each.port() != named_port()) all.push_back(&each);
  }
  return all;
}

bool Sentinels::failed_over(int port) {
  // A sentinel that the machine stalled for two seconds starts no failover for the next thirty.
  return eventually(
      [&] {
        for (std::size_t i = 0; i < sentinels_.size(); ++i) {
          if (named_port(i) == port) return false;
        }
        return says_it_is_master(master());
      },
      milliseconds(90'000));
}

}  // namespace dlock::test
