#include <sys/statfs.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "doctor/examine_redis.hpp"
#include "local/key_file.hpp"
#include "local/local_store.hpp"
#include "redis/redis_connection.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

/// An entry of CLUSTER SLOTS: first slot, last slot, then [host, port, id, ...] of the master and
/// of each replica (https://redis.io/docs/latest/commands/cluster-slots/). An empty host means the
/// server that replied. Impossible entries are skipped, so their slots count as unserved.
void note_range(const Reply& entry, const Endpoint& seed, ClusterFacts& facts) {
  if (!entry.is_array(3) || !entry.items[2].is_array(2)) return;
  const auto& node = entry.items[2].items;
  const auto first = entry.items[0].integer;
  const auto last = entry.items[1].integer;
  const bool no_host = node[0].text.empty() || node[0].text == "?";
  const auto place = announced(no_host ? seed.host : node[0].text, text_of(node[1]));
  if (!place || first < 0 || last < first || last >= slots_of_a_cluster) return;
  Endpoint master = seed;
  master.host = place->host;
  master.port = place->port;
  auto shard = std::find_if(facts.shards.begin(), facts.shards.end(),
                            [&](const ShardFacts& each) { return each.master == master; });
  if (shard == facts.shards.end()) shard = facts.shards.insert(shard, {master, {}});
  shard->slots.emplace_back(static_cast<int>(first), static_cast<int>(last));
}

/// The error reply as a fault with the text `words`; empty if the reply is no error.
Fault fault_of(const Reply& reply, const std::string& words) {
  if (!reply.is_error()) return {};
  return {words, server_error(reply).cause()};
}

}  // namespace

SentinelFacts examine_sentinel(const Endpoint& sentinel, const std::string& master_name) {
  SentinelFacts facts;
  facts.endpoint = sentinel;
  RedisConnection connection(std::make_unique<FixedEndpoint>(sentinel));
  try {
    const Request requests[] = {{"SENTINEL", "get-master-addr-by-name", master_name},
                                {"SENTINEL", "master", master_name},
                                {"SENTINEL", "ckquorum", master_name}};
    const auto replies = ask_all(connection, requests);
    facts.unreachable = fault_of(replies[0], refusal_of(replies[0]));
    if (replies[0].is_array(2)) {
      facts.host = replies[0].items[0].text;
      facts.port = replies[0].items[1].text;
    }
    facts.master = told_in_pairs(replies[1]);
    if (replies[2].is_error("NOQUORUM")) facts.quorum_fault = escaped(replies[2].text);
  } catch (const Error& error) {
    facts.unreachable = {bare_trouble(error.what(), sentinel.name()), error.cause()};
  }
  return facts;
}

ClusterFacts examine_cluster(const std::vector<Endpoint>& seeds) {
  ClusterFacts facts;
  for (const Endpoint& seed : seeds) {
    RedisConnection connection(std::make_unique<FixedEndpoint>(seed));
    try {
      const Request requests[] = {{"CLUSTER", "SLOTS"}, {"CLUSTER", "INFO"}};
      const auto replies = ask_all(connection, requests);
      if (!facts.shards.empty()) continue;
      facts.fault = fault_of(replies[0], escaped(replies[0].text));
      for (const Reply& entry : replies[0].items) note_range(entry, seed, facts);
      facts.info = told_in_lines(replies[1]);
    } catch (const Error& error) {
      facts.silent_seeds.emplace_back(
          seed.address(), Fault{bare_trouble(error.what(), seed.name()), error.cause()});
    }
  }
  return facts;
}

/// A node's own line in CLUSTER NODES ends with `[SLOT->-NODE]` or `[SLOT-<-NODE]` for each slot
/// that migrates (https://redis.io/docs/latest/commands/cluster-nodes/).
std::set<int> open_slots_of(const Endpoint& master) {
  std::set<int> slots;
  RedisConnection connection(std::make_unique<FixedEndpoint>(master));
  try {
    const std::string told = ask(connection, {"CLUSTER", "NODES"}).text;
    std::string_view rest =
        std::string_view(told).substr(std::min(told.size(), told.find("myself")));
    auto line = take_until(rest, '\n');
    while (!line.empty()) {
      auto word = take_until(line, ' ');
      if (!word.starts_with('[')) continue;
      const auto slot = parse_number(word.substr(1, word.find('-') - 1), 0, slots_of_a_cluster - 1);
      if (slot) slots.insert(static_cast<int>(*slot));
    }
  } catch (const Error&) {
    // examine_server reports why the server does not answer.
  }
  return slots;
}

}  // namespace dlock
