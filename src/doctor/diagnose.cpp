#include "doctor/diagnose.hpp"

#include <future>

#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "doctor/examine_redis.hpp"
#include "doctor/redis_checks.hpp"
#include "redis/cluster_router.hpp"
#include "redis/protocol_text.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {
namespace {

constexpr const char* best_effort = "best effort";

/// doctor asks all servers at once, or one after another if it cannot start threads.
constexpr auto at_once_if_possible = std::launch::async | std::launch::deferred;

/// A new key whose slot is one of `slots`.
LockKey scratch_key_in(const std::vector<std::pair<int, int>>& slots, const std::string& prefix) {
  constexpr int enough = 500'000;  // to find a single slot of 16384
  const LockKey any = scratch_key();
  LockKey key = any;
  for (int i = 0; i < enough; ++i) {
    key.text = any.text + "-" + std::to_string(i);
    const int slot = slot_of(KeyNames(prefix, key).holds);
    for (const auto& [first, last] : slots) {
      if (first <= slot && slot <= last) return key;
    }
  }
  return key;
}

void append(Findings& to, Findings more) {
  for (Finding& each : more) to.push_back(std::move(each));
}

}  // namespace

Diagnosis diagnose_server(const Endpoint& server, DoctorOptions exam) {
  exam.topology = Topology::single;
  const ServerFacts facts = examine_server(server, exam, scratch_key());
  return {server.name(), best_effort, judge_server(facts)};
}

Diagnosis diagnose_sentinels(const std::vector<Endpoint>& sentinels, const std::string& master_name,
                             const Endpoint& master, DoctorOptions exam) {
  exam.topology = Topology::sentinel;
  Diagnosis diagnosis{
      deployment_name("sentinel", sentinels) + "/" + escaped(master_name), best_effort, {}};
  std::vector<std::future<SentinelFacts>> asked;
  for (const Endpoint& each : sentinels) {
    asked.push_back(std::async(at_once_if_possible, [&each, &master_name] {
      return examine_sentinel(each, master_name);
    }));
  }
  std::vector<SentinelFacts> heard;
  for (auto& each : asked) heard.push_back(each.get());
  diagnosis.findings = judge_sentinels(heard, exam);
  for (const SentinelFacts& each : heard) {
    const auto named = announced(each.host, each.port);
    if (!named) continue;
    Endpoint there = master;
    there.host = named->host;
    there.port = named->port;
    append(diagnosis.findings, judge_server(examine_server(there, exam, scratch_key())));
    break;
  }
  return diagnosis;
}

Diagnosis diagnose_cluster(const std::vector<Endpoint>& seeds, DoctorOptions exam) {
  exam.topology = Topology::cluster;
  Diagnosis diagnosis{deployment_name("cluster", seeds), best_effort, {}};
  ClusterFacts cluster = examine_cluster(seeds);
  std::vector<std::future<ServerFacts>> asked;
  for (const ShardFacts& shard : cluster.shards) {
    asked.push_back(std::async(at_once_if_possible, [&shard, &exam] {
      return examine_server(shard.master, exam, scratch_key_in(shard.slots, exam.prefix));
    }));
  }
  for (const ShardFacts& shard : cluster.shards) {
    cluster.open_slots.merge(open_slots_of(shard.master));
  }
  std::vector<std::pair<std::string, Findings>> masters;
  for (auto& each : asked) {
    const ServerFacts facts = each.get();
    masters.emplace_back(facts.endpoint.address(), judge_server(facts));
  }
  diagnosis.findings = judge_cluster(cluster);
  append(diagnosis.findings, merged(masters));
  return diagnosis;
}

Diagnosis diagnose_quorum(const std::vector<Endpoint>& servers, DoctorOptions exam) {
  exam.topology = Topology::quorum;
  std::vector<std::future<ServerFacts>> asked;
  for (const Endpoint& each : servers) {
    asked.push_back(std::async(
        at_once_if_possible, [&each, &exam] { return examine_server(each, exam, scratch_key()); }));
  }
  std::string names;
  std::vector<ServerFacts> heard;
  std::vector<std::pair<std::string, Findings>> members;
  for (auto& each : asked) {
    heard.push_back(each.get());
    const Endpoint& endpoint = heard.back().endpoint;
    names += (names.empty() ? "" : " ") + endpoint.name();
    members.emplace_back(endpoint.address(), judge_server(heard.back()));
  }
  Diagnosis diagnosis{names, "a majority decides", judge_quorum(heard)};
  append(diagnosis.findings, merged(members));
  return diagnosis;
}

}  // namespace dlock
