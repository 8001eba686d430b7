#include <algorithm>
#include <span>
#include <string_view>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "doctor/redis_rights.hpp"
#include "redis/redis_connection.hpp"
#include "redis/redis_store.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

/// Returns the reply, which may be an error. Throws Error{unavailable} if none comes in time.
Reply ask(RedisConnection& connection, const Request& request) {
  return connection.exchange(std::span(&request, 1), short_call()).front();
}

std::optional<WallTime> time_in(const Reply& reply) {
  constexpr long long latest = 9'000'000'000;  // of the year 2255
  if (!reply.is_array(2)) return std::nullopt;
  const auto seconds = parse_number(reply.items[0].text, 0, latest);
  const auto us = parse_number(reply.items[1].text, 0, latest);
  if (!seconds || !us) return std::nullopt;
  return WallTime(std::chrono::seconds(*seconds) + microseconds(*us));
}

void listen_to(RedisConnection& connection, ServerFacts& facts) {
  std::vector<Request> requests{{"HELLO", "2"}, {"INFO"}, {"ACL", "WHOAMI"}};
  for (const char* name :
       {"appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save", "maxmemory",
        "maxmemory-policy", "min-replicas-to-write", "cluster-node-timeout"}) {
    requests.push_back({"CONFIG", "GET", name});
  }
  const auto replies = connection.exchange(requests, short_call());
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
  const bool takes_locks = role.empty() || role == "master";
  return takes_locks &&
         (facts.mode() == "cluster") == (facts.options.topology == Topology::cluster);
}

/// How long the node's quarantine still lasts. If the node has lost its keys, this request begins
/// its quarantine of two minutes.
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
  for (const Right& right : rights_needed(options, facts.endpoint, scratch)) {
    const Reply reply = ask(connection, right.trial);
    if (right.spends_link) connection.close();
    // The reply to EXEC has other words before NOPERM.
    if (reply.text.find("NOPERM") != std::string::npos) facts.missing.push_back(right.word);
  }
  const bool may_move =
      options.topology == Topology::sentinel || options.topology == Topology::cluster;
  const auto open = [&] {
    return std::make_unique<RedisStore>(
        facts.endpoint, RedisStoreOptions{options.prefix, options.replicas, may_move});
  };
  facts.trial = try_lock(open, key, facts.endpoint.name());
  if (options.topology == Topology::quorum) facts.quarantined_for = quarantined_for(facts, key);
  for (const std::string& each : {scratch.holds, scratch.queue, scratch.waiters, scratch.fence}) {
    ask(connection, {"PEXPIRE", each, "0"});
  }
}

/// Name and version of the engine, by a field of INFO that only it has, or by HELLO.
std::pair<std::string, std::string> engine_of(const ServerFacts& facts) {
  // KeyDB has no field with its name; its section "# KeyDB" begins with mvcc_depth
  // (https://docs.keydb.dev/docs/commands/#info).
  constexpr const char* signs[][3] = {{"dragonfly_version", "Dragonfly", "dragonfly_version"},
                                      {"garnet_version", "Garnet", "garnet_version"},
                                      {"kvrocks_version", "Kvrocks", "kvrocks_version"},
                                      {"valkey_version", "Valkey", "valkey_version"},
                                      {"mvcc_depth", "KeyDB", "redis_version"},
                                      {"redis_version", "Redis", "redis_version"}};
  for (const auto& [field, engine, version] : signs) {
    if (facts.info.text(field)) return {engine, facts.info.shown(version)};
  }
  std::string server = facts.hello.shown("server");
  if (server == "redis" || server == "valkey") server.front() -= 'a' - 'A';
  return {server, facts.hello.shown("version")};
}

Findings check_kind(const ServerFacts& facts) {
  const Finding reach = check_reach(facts, advice_on_reach(facts.unreachable.cause));
  const auto [engine, version] = engine_of(facts);
  const std::string role = facts.role(), mode = facts.mode();
  const Topology topology = facts.options.topology;
  const std::string to = std::string("--server ") + (facts.endpoint.tls ? "rediss" : "redis");
  const std::string address = facts.endpoint.address();
  const std::string host = facts.info.text("master_host").value_or("");
  const std::string master =
      host.empty() ? "" : address_of(host, facts.info.text("master_port").value_or(""));
  return first_rows({
      {"reach", true, reach, !facts.unreachable.empty()},
      {"engine", engine.empty(), not_told(refusals(facts))},
      {"engine", engine != "Redis" && engine != "Valkey",
       warn(sentence("{} {}: dlock is tested only with Redis and Valkey", engine, version),
            "try it under your load before you rely on it")},
      {"engine", true, check_versions(engine, {version}, {6, 2})},
      // After an error here the remaining checks would describe the wrong server.
      {"role", role == "sentinel" || mode == "sentinel",
       bad("a Sentinel, which holds no data", to + "+sentinel://" + address + "/NAME"), ends},
      {"role", role == "slave",
       bad(sentence("a replica{}: it takes no locks", master.empty() ? "" : " of " + master),
           topology == Topology::quorum   ? "name independent servers"
           : topology != Topology::single ? "look at the last failover"
           : master.empty()               ? "name its master"
                                          : to + "://" + master),
       ends},
      {"role", mode == "cluster" && topology != Topology::cluster,
       bad("a node of a Cluster: most keys live on others", to + "+cluster://" + address), ends},
      {"role", role.empty(), not_told(refusals(facts))},
      {"role", true, good(escaped(role))},
  });
}

Finding check_certificates(const TlsFacts& tls, WallTime now) {
  constexpr int warned_of = 14;  // days
  const auto left = std::chrono::floor<std::chrono::days>(tls.expires - now).count();
  if (left >= warned_of) {
    return good(tls.version + ", certificate valid until " + iso8601(tls.expires).substr(0, 10));
  }
  return warn(sentence("{}, but a certificate {}", tls.version,
                       left < 0 ? "has expired" : "expires in " + counted(left, "day")),
              "renew it");
}

Findings check_access(const ServerFacts& facts) {
  const Endpoint& endpoint = facts.endpoint;
  const bool here = endpoint.is_unix() || is_this_host(endpoint.host);
  const std::string user =
      escaped(facts.user.empty() ? endpoint.user.value_or("default") : facts.user);
  const bool tried = facts.trial.has_value();
  const std::string missing = joined(facts.missing, " ");
  return first_rows({
      {"tls", facts.tls.has_value(),
       check_certificates(facts.tls.value_or(TlsFacts{}), facts.seen_at)},
      {"tls", endpoint.is_unix(), good("none, on a Unix socket")},
      {"tls", true, check_plain_text(here, "rediss:// in --server, with TLS on the server")},
      {"user", endpoint.password.has_value(), good(user + ", by password")},
      {"user", here || (endpoint.tls && !endpoint.tls->certificate.empty()),
       good(user + ", without a password")},
      {"user", true,
       warn(user + ", without a password: anyone with access to the port can take any lock away",
            "dlock doctor --acl prints a user; then protect the default one")},
      {"rights", tried && !missing.empty(),
       bad("the user may not use: " + missing, advice_on(Cause::acl, ""))},
      {"rights", tried, good("all that dlock needs")},
      {"lock", tried, check_lock(facts.trial)},
  });
}

/// A setting from CONFIG or, if the user may not call CONFIG, from INFO, where its name is
/// `in_info`.
std::optional<std::string> setting(const ServerFacts& facts, const char* name,
                                   const char* in_info) {
  const auto by_config = facts.config.text(name);
  return by_config ? by_config : facts.info.text(in_info);
}

/// How much the server keeps of the locks when it crashes.
Finding check_persistence(const ServerFacts& facts) {
  const auto appends = setting(facts, "appendonly", "aof_enabled");
  const bool is_off = appends != "yes" && appends != "1";
  const bool has_snapshots = facts.config.text("save") != "";
  const std::string fsync = facts.config.shown("appendfsync");
  const bool skips_some = facts.config.text("no-appendfsync-on-rewrite") == "yes";
  const std::string append = "CONFIG SET appendonly yes, and in its redis.conf";
  const Findings found = first_rows({
      {"persistence", facts.info.text("aof_last_write_status").value_or("ok") != "ok",
       bad("writing to disk fails", "fix its disk: see its log")},
      {"persistence", !appends, not_told(refusals(facts))},
      {"persistence", is_off && has_snapshots,
       warn("snapshots at most: a crash forgets the locks since the last one; fences then depend "
            "only on its clock",
            append)},
      {"persistence", is_off,
       warn("none: a restart forgets held locks, so two may run at once; fences then depend only "
            "on its clock",
            append)},
      {"persistence", fsync == "no" || (fsync == "always" && skips_some),
       warn("appendonly, but often without fsync: a power cut forgets half a minute of locks",
            "CONFIG SET appendfsync everysec, or always; no-appendfsync-on-rewrite no")},
      {"persistence", fsync == "always",
       good("appendonly, appendfsync always: locks and fences outlive a crash")},
      {"persistence", true,
       good(sentence("appendonly, appendfsync {}: a power cut may forget the last second's locks",
                     fsync.empty() ? "not told (" + refusals(facts) + ")" : fsync))},
  });
  return found.front();
}

Finding check_eviction(const ServerFacts& facts) {
  const auto policy = setting(facts, "maxmemory-policy", "maxmemory_policy");
  const auto limit = setting(facts, "maxmemory", "maxmemory");
  const std::string evicts = escaped(policy.value_or(""));
  if (!policy || !limit) return not_told(refusals(facts));
  if (limit == "0") return good("none: maxmemory 0 (policy " + evicts + ")");
  if (policy == "noeviction") return good("none: noeviction");
  return bad(evicts + ": a full server evicts held locks, and another client can acquire them",
             "CONFIG SET maxmemory-policy noeviction");
}

/// Whether a node of a majority has a vote.
Finding check_vote(const ServerFacts& facts) {
  if (!facts.quarantined_for) return not_told("the lock that was tried");
  if (*facts.quarantined_for == milliseconds(0)) return good("has one");
  return warn(sentence("none for another {}: restarted or flushed, or it has evicted keys: it may "
                       "have forgotten a lease",
                       human_duration(*facts.quarantined_for)),
              "wait; appendonly yes and appendfsync always keep the vote over a restart, if "
              "dlock's user may CONFIG GET");
}

/// The number of replicas that are in step: INFO has
/// `slave0:ip=10.0.0.2,port=6379,state=online,...` for each.
long long in_step(const ServerFacts& facts) {
  const auto& fields = facts.info.values;
  return std::count_if(fields.begin(), fields.end(), [](const auto& field) {
    return field.first.starts_with("slave") &&
           field.second.find("state=online") != field.second.npos;
  });
}

Finding check_replication(const ServerFacts& facts) {
  const auto told = facts.info.number("connected_slaves");
  const long long connected = told.value_or(0), usable = in_step(facts);
  const Topology topology = facts.options.topology;
  const bool fails_over = topology == Topology::sentinel || topology == Topology::cluster;
  if (!told) return not_told(refusals(facts));
  if (usable < connected) {
    return warn(sentence("{} of {} not in step: a failover to one forgets locks",
                         counted(connected - usable, "replica"), connected),
                "see INFO replication, there and here");
  }
  if (fails_over && connected == 0) {
    return warn(
        "no replica: if this master fails, its locks are lost, and there is nothing to fail over "
        "to",
        "connect a replica");
  }
  const std::string there = counted(connected, "replica");
  if (topology != Topology::sentinel || facts.config.number("min-replicas-to-write") != 0) {
    return good(there);
  }
  return warn(there +
                  ", min-replicas-to-write 0: a master cut off from them goes on granting locks "
                  "that the next one does not know",
              "CONFIG SET min-replicas-to-write 1, on each of them");
}

/// How safe locks on this server are, and why.
Finding check_label(const ServerFacts& facts) {
  const bool replicated = facts.options.topology != Topology::single ||
                          facts.info.number("connected_slaves").value_or(0) > 0;
  return good(std::string("best effort: ") +
              (!replicated
                   ? "only as durable as the data of this one server"
                   : "replication is asynchronous, so a failover may forget the newest locks"));
}

}  // namespace

std::string refusal_of(const Reply& reply) {
  constexpr std::size_t enough = 60;
  if (!reply.is_error()) return "";
  const std::string_view text = reply.text;
  if (text.find("unknown command") != std::string_view::npos) return "unknown command";
  const auto code = text.substr(0, text.find(' '));
  return escaped(code == "ERR" ? text.substr(0, enough) : code.substr(0, enough));
}

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

ServerInfo told_in_pairs(const Reply& reply) {
  ServerInfo told{{}, refusal_of(reply)};
  for (std::size_t i = 0; i + 1 < reply.items.size(); i += 2) {
    told.values.emplace(reply.items[i].text, reply.items[i + 1].text);
  }
  return told;
}

std::string ServerFacts::role() const {
  const std::string role = info.text("role").value_or(hello.text("role").value_or(""));
  return role.ends_with("replica") ? "slave" : role;
}

std::string ServerFacts::mode() const {
  const std::string by_hello = hello.text("mode").value_or("");
  return info.text("redis_mode").value_or(info.text("server_mode").value_or(by_hello));
}

ServerFacts examine_server(const Endpoint& endpoint, const DoctorOptions& options,
                           const LockKey& scratch) {
  ServerFacts facts;
  facts.options = options;
  facts.endpoint = endpoint;
  RedisConnection connection(endpoint);
  const auto clock = [&] { return time_in(ask(connection, {"TIME"})); };
  examine(facts, endpoint.name(), clock, [&] {
    facts.seen_at = wall_now();
    facts.tls = connection.tls_facts();
    listen_to(connection, facts);
    if (is_for_trial(facts)) try_on_server(connection, scratch, facts);
  });
  return facts;
}

std::string refusals(const ServerFacts& facts) {
  std::string text = facts.info.refusal.empty() ? "" : "INFO: " + facts.info.refusal;
  if (!facts.config.refusal.empty()) {
    text += (text.empty() ? "" : ", ") + std::string("CONFIG: ") + facts.config.refusal;
  }
  return text.empty() ? "not reported by the server" : text;
}

Findings check_server(const ServerFacts& facts) {
  Findings all = check_kind(facts);
  if (all.back().level == Level::error) return all;
  const Topology topology = facts.options.topology;
  const bool is_node = topology == Topology::quorum;
  const auto node_timeout = facts.config.number("cluster-node-timeout");
  append(all, check_access(facts));
  append(all, first_rows({
                  {"eviction", true, check_eviction(facts)},
                  {"vote", is_node && facts.trial, check_vote(facts)},
                  {"persistence", !is_node, check_persistence(facts)},
                  {"replication", true, check_replication(facts)},
                  {"clock", true, check_clock(facts.clock)},
                  {"failover", topology == Topology::cluster && node_timeout,
                   check_failover(milliseconds(node_timeout.value_or(0)), "cluster-node-timeout",
                                  facts.options.ttl)},
                  {"label", !is_node, check_label(facts)},
              }));
  return all;
}

}  // namespace dlock
