#include <algorithm>
#include <span>
#include <string_view>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/facts.hpp"
#include "doctor/rights.hpp"
#include "redis/cluster_router.hpp"
#include "redis/redis_connection.hpp"
#include "redis/redis_store.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

const char* const settings_of_interest[] = {"appendonly",
                                            "appendfsync",
                                            "no-appendfsync-on-rewrite",
                                            "save",
                                            "maxmemory",
                                            "maxmemory-policy",
                                            "min-replicas-to-write",
                                            "timeout",
                                            "min-replicas-max-lag",
                                            "active-replica",
                                            "multi-master",
                                            "cluster-node-timeout"};

RedisConnection connection_to(const Endpoint& endpoint) { return RedisConnection(endpoint); }

/// The replies, error replies included. Throws Error{unavailable} after some seconds without any.
std::vector<Reply> ask_all(RedisConnection& connection, std::span<const Request> requests) {
  return connection.exchange(requests, short_call());
}

Reply ask(RedisConnection& connection, const Request& request) {
  return ask_all(connection, std::span(&request, 1)).front();
}

/// The reason in an error reply: `NOPERM`, `unknown command`, or its text, escaped; empty for other
/// replies.
std::string refusal_of(const Reply& reply) {
  constexpr std::size_t enough = 60;
  if (!reply.is_error()) return "";
  const std::string_view text = reply.text;
  if (text.find("unknown command") != std::string_view::npos) return "unknown command";
  const auto code = text.substr(0, text.find(' '));
  return escaped(code == "ERR" ? text.substr(0, enough) : code.substr(0, enough));
}

/// The text or number of a reply as text.
std::string text_of(const Reply& reply) {
  return reply.kind == Reply::Kind::integer ? std::to_string(reply.integer) : reply.text;
}

/// The lines `name:value` of a reply, such as that of INFO.
ServerInfo told_in_lines(const Reply& reply) {
  ServerInfo told{{}, refusal_of(reply)};
  std::string_view rest = reply.text;
  while (told.refusal.empty() && !rest.empty()) {
    auto line = take_until(rest, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    told.values.emplace(line.substr(0, colon), line.substr(colon + 1));
  }
  return told;
}

/// Names and values in turn, as in the replies of CONFIG GET, HELLO and SENTINEL MASTER.
ServerInfo told_in_pairs(const Reply& reply) {
  ServerInfo told{{}, refusal_of(reply)};
  for (std::size_t i = 0; i + 1 < reply.items.size(); i += 2) {
    told.values.emplace(reply.items[i].text, text_of(reply.items[i + 1]));
  }
  return told;
}

std::optional<WallTime> time_in(const Reply& reply) {
  constexpr long long largest_second = 9'000'000'000;  // of the year 2255
  constexpr long long us_a_second = 1'000'000;
  if (!reply.is_array(2)) return std::nullopt;
  const auto seconds = parse_number(reply.items[0].text, 0, largest_second);
  const auto us = parse_number(reply.items[1].text, 0, us_a_second);
  if (!seconds || !us) return std::nullopt;
  return WallTime(std::chrono::seconds(*seconds) + microseconds(*us));
}

void listen_to(RedisConnection& connection, ServerFacts& facts) {
  std::vector<Request> requests{{"HELLO", "2"}, {"INFO"}, {"ACL", "WHOAMI"}};
  for (const char* name : settings_of_interest) requests.push_back({"CONFIG", "GET", name});
  const auto replies = ask_all(connection, requests);
  facts.hello = told_in_pairs(replies[0]);
  facts.info = told_in_lines(replies[1]);
  if (!replies[2].is_error()) facts.user = replies[2].text;
  for (std::size_t i = 3; i < replies.size(); ++i) {
    ServerInfo one = told_in_pairs(replies[i]);
    if (!one.refusal.empty()) facts.config.refusal = one.refusal;
    facts.config.values.merge(one.values);
  }
}

/// Whether this server will hold locks: not a replica, a sentinel or a node of an unexpected
/// Cluster.
bool is_for_trial(const ServerFacts& facts) {
  const std::string role = facts.role();
  const bool takes_locks = role.empty() || role == "master" || role == "active-replica";
  return takes_locks &&
         (facts.mode() == "cluster") == (facts.options.topology == Topology::cluster);
}

void note_refusal(const Right& right, const Reply& reply, ServerFacts& facts) {
  const auto says = [&](const char* what) { return reply.text.find(what) != std::string::npos; };
  const bool of_scripts = right.word == "eval" || right.word == "evalsha";
  if (says("NOPERM")) {  // to EXEC behind other words
    const std::string word = lacking(right, reply.text, acl_pattern(facts.options.prefix));
    auto& missing = facts.missing;
    if (std::find(missing.begin(), missing.end(), word) == missing.end()) missing.push_back(word);
  } else if (of_scripts && (says("unknown command") || says("Lua"))) {
    facts.no_scripts = refusal_of(reply);
  } else if (says("unknown command")) {
    facts.absent.push_back(right.word);
  }
}

/// The rest of the node's quarantine. A node that lost its keys begins its two minutes with this
/// request.
std::optional<milliseconds> quarantined_for(const ServerFacts& facts, const LockKey& key) {
  try {
    RedisMember member(facts.endpoint, facts.options.prefix);
    member.renew(claim_named(key, new_token(Owner{"doctor"})), {}, short_call());
    return member.standing().quarantined_for;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void try_on_server(RedisConnection& connection, const LockKey& key, ServerFacts& facts) {
  const DoctorOptions& options = facts.options;
  const KeyNames scratch(options.prefix, key);
  facts.trial.emplace();
  for (const Right& right : rights_needed(options, facts.endpoint, scratch)) {
    const Reply reply = ask(connection, right.trial);
    if (reply.is_error()) note_refusal(right, reply, facts);
    if (right.spends_link) connection.close();
  }
  if (facts.no_scripts.empty()) {
    const bool may_move =
        options.topology == Topology::sentinel || options.topology == Topology::cluster;
    const auto open = [&] {
      return std::make_unique<RedisStore>(
          facts.endpoint, RedisStoreOptions{options.prefix, options.replicas, may_move});
    };
    facts.trial = try_lock(open, key, facts.endpoint.name());
    if (options.topology == Topology::quorum) facts.quarantined_for = quarantined_for(facts, key);
  }
  for (const std::string& each : {scratch.holds, scratch.queue, scratch.waiters, scratch.fence}) {
    ask(connection, {"PEXPIRE", each, "0"});
  }
}

/// A new key in a slot of this master.
LockKey scratch_key_of(const NodeAddress& master, const SlotMap& slots, const std::string& prefix) {
  constexpr int enough = 500'000;  // to find a single slot of 16384
  const std::string any = scratch_key().text;
  LockKey key{any};
  for (int i = 0; i < enough && slots.owner(slot_of(KeyNames(prefix, key).holds)) != master; ++i) {
    key.text = any + "-" + std::to_string(i);
  }
  return key;
}

/// A node's own line in CLUSTER NODES ends with `[SLOT->-NODE]` or `[SLOT-<-NODE]` for each slot
/// that migrates (https://redis.io/docs/latest/commands/cluster-nodes/).
void note_open_slots(const Endpoint& master, ClusterFacts& facts) {
  try {
    RedisConnection connection = connection_to(master);
    const std::string told = ask(connection, {"CLUSTER", "NODES"}).text;
    std::string_view rest =
        std::string_view(told).substr(std::min(told.size(), told.find("myself")));
    auto line = take_until(rest, '\n');
    while (!line.empty()) {
      auto word = take_until(line, ' ');
      if (!word.starts_with('[')) continue;
      constexpr int last_slot = 16383;
      const auto slot = parse_number(word.substr(1, word.find('-') - 1), 0, last_slot);
      if (slot) facts.open_slots.insert(static_cast<int>(*slot));
    }
  } catch (const Error&) {
    // examine_server reports why the server does not answer.
  }
}

/// The error reply as a fault with the text `words`; empty if the reply is no error.
Fault fault_of(const Reply& reply, const std::string& words) {
  if (!reply.is_error()) return {};
  return {words, server_error(reply).cause()};
}

Fault fault_of(const Error& error, const Endpoint& server) {
  return {bare_trouble(error.what(), server.name()), error.cause()};
}

}  // namespace

std::string ServerFacts::role() const {
  const std::string role = info.text("role").value_or(hello.text("role").value_or(""));
  return role == "replica" ? "slave" : role;
}

std::string ServerFacts::mode() const {
  for (const char* name : {"redis_mode", "server_mode"}) {
    if (auto mode = info.text(name)) return *mode;
  }
  return hello.text("mode").value_or("");
}

ServerFacts examine_server(const Endpoint& endpoint, const DoctorOptions& options,
                           const LockKey& scratch) {
  ServerFacts facts;
  facts.options = options;
  facts.endpoint = endpoint;
  RedisConnection connection = connection_to(endpoint);
  const auto clock = [&] {
    const auto server = time_in(ask(connection, {"TIME"}));
    if (facts.clock.empty()) {
      facts.seen_at = wall_now();
      facts.tls = connection.tls_facts();
    }
    return server;
  };
  examine(facts, endpoint.name(), clock, [&] {
    listen_to(connection, facts);
    if (is_for_trial(facts)) try_on_server(connection, scratch, facts);
  });
  return facts;
}

SentinelFacts examine_sentinel(const Endpoint& sentinel, const std::string& master_name) {
  SentinelFacts facts;
  facts.endpoint = sentinel;
  try {
    RedisConnection connection = connection_to(sentinel);
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
    facts.unreachable = fault_of(error, sentinel);
  }
  return facts;
}

ClusterFacts examine_cluster(const std::vector<Endpoint>& seeds, const std::string& prefix) {
  ClusterFacts facts;
  for (const Endpoint& seed : seeds) {
    try {
      RedisConnection connection = connection_to(seed);
      const Request requests[] = {{"CLUSTER", "SLOTS"}, {"CLUSTER", "INFO"}};
      const auto replies = ask_all(connection, requests);
      if (!facts.masters.empty()) continue;
      facts.fault = fault_of(replies[0], escaped(replies[0].text));
      facts.info = told_in_lines(replies[1]);
      if (!facts.fault.empty()) continue;
      SlotMap slots;
      slots.learn(replies[0], {seed.host, seed.port});
      facts.unserved = slots.unserved();
      for (const NodeAddress& each : slots.masters()) {
        facts.masters.emplace_back(endpoint_at(seed, each), scratch_key_of(each, slots, prefix));
      }
    } catch (const Error& error) {
      facts.silent_seeds.emplace_back(seed.address(), fault_of(error, seed));
    }
  }
  for (const auto& [master, scratch] : facts.masters) note_open_slots(master, facts);
  return facts;
}

}  // namespace dlock
