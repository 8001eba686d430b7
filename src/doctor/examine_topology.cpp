#include <sys/statfs.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/ask.hpp"
#include "doctor/examine.hpp"
#include "doctor/trial_lock.hpp"
#include "local/key_file.hpp"
#include "local/local_store.hpp"
#include "redis/node_address.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

/// An entry of CLUSTER SLOTS: first slot, last slot, then [host, port, id, ...] of the master and
/// of each replica (https://redis.io/docs/latest/commands/cluster-slots/). No host means the one
/// that was asked. What cannot be is left out, and so its slots count as nobody's.
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

/// Why a server does not tell what it was asked, in `words`; empty if it does.
Fault fault_of(const Reply& reply, const std::string& words) {
  if (!reply.is_error()) return {};
  return {words, server_error(reply).cause()};
}

/// A free key's file would keep its fence for a week.
void sweep(const DirectorySettings& settings, const LockKey& scratch) {
  const Directory directory(settings);
  auto file = KeyFile::open(directory, key_file_name(scratch), KeyFile::Use::change,
                            {later(BootClock::now(), milliseconds(1000)), -1});
  if (file) file->remove();
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

/// Its own line in CLUSTER NODES ends with `[SLOT->-NODE]` or `[SLOT-<-NODE]` for each of them
/// (https://redis.io/docs/latest/commands/cluster-nodes/).
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
    // The examination of the server itself says why it does not answer.
  }
  return slots;
}

LocalFacts examine_directory(const DirectorySettings& settings) {
  LocalFacts facts;
  facts.directory = settings.path;
  try {
    LocalStore first(settings);
    LocalStore second(settings);
    struct statfs system {};
    if (statfs(settings.path.c_str(), &system) == 0) {
      facts.file_system = static_cast<long>(system.f_type);
    }
    const LockKey scratch = scratch_key();
    facts.trial = hold_trial_lock(first, second, scratch);
    sweep(settings, scratch);
  } catch (const Error& error) {
    facts.trouble = error.what();
  }
  return facts;
}

}  // namespace dlock
