#include <algorithm>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"

namespace dlock {
namespace {

/// An engine, by a field of INFO that only it has.
struct EngineField {
  const char* field;
  const char* engine;
  const char* version;
  bool tested = false;  ///< together with dlock
};
constexpr EngineField engine_fields[] = {
    {"dragonfly_version", "Dragonfly", "dragonfly_version"},
    {"garnet_version", "Garnet", "garnet_version"},
    {"kvrocks_version", "Kvrocks", "kvrocks_version"},
    {"valkey_version", "Valkey", "valkey_version", true},
    // KeyDB has no field with its name; its section "# KeyDB" begins with this one
    // (https://docs.keydb.dev/docs/commands/#info).
    {"mvcc_depth", "KeyDB", "redis_version"},
    {"redis_version", "Redis", "redis_version", true}};

struct Engine {
  std::string name;
  std::string version;
  bool tested = false;
};

Engine engine_of(const ServerFacts& facts) {
  for (const EngineField& each : engine_fields) {
    if (!facts.info.text(each.field)) continue;
    return {each.engine, facts.info.shown(each.version), each.tested};
  }
  const std::string server = facts.hello.shown("server"), version = facts.hello.shown("version");
  if (server == "redis") return {"Redis", version, true};
  if (server == "valkey") return {"Valkey", version, true};
  return {server, version};
}

Findings check_kind(const ServerFacts& facts) {
  const Finding reach = check_reach(facts, advice_on_reach(facts.unreachable.cause));
  const Engine engine = engine_of(facts);
  const std::string version = engine.name + " " + engine.version;
  const std::string role = facts.role(), mode = facts.mode();
  const bool active = role == "active-replica" || facts.config.text("active-replica") == "yes" ||
                      facts.config.text("multi-master") == "yes";
  const Topology topology = facts.options.topology;
  const std::string to = std::string("--server ") + (facts.endpoint.tls ? "rediss" : "redis");
  const std::string address = facts.endpoint.address();
  const std::string host = facts.info.text("master_host").value_or("");
  const std::string master =
      host.empty() ? "" : address_of(host, facts.info.text("master_port").value_or(""));
  return first_rows({
      {"reach", !facts.unreachable.empty(), reach, ends},
      {"reach", reach.level != Level::error && facts.info.text("loading") == "1",
       bad(sentence("{}, but still loads its data ({} %)", reach.text,
                    escaped(facts.info.text("loading_loaded_perc").value_or("?"))),
           "wait until it has")},
      {"reach", true, reach},
      {"engine", engine.name.empty(), not_told(refusals(facts))},
      {"engine", active,
       bad(version + " with active replicas: two servers may grant one lock",
           "active-replica no and multi-master no, or another server")},
      {"engine", !engine.tested,
       warn(version + ": dlock is tested only with Redis and Valkey",
            "try it under your load before you rely on it")},
      {"engine", is_older(engine.version, {6, 2}),
       bad(version + " is older than 6.2, the least dlock works with",
           "upgrade to Redis 6.2, Valkey 7.2 or newer")},
      {"engine", true, good(version)},
      // After an error here the remaining checks would describe the wrong server.
      {"role", role == "sentinel" || mode == "sentinel",
       bad("a Sentinel, which holds no data", to + "+sentinel://" + address + "/NAME"), ends},
      {"role", role == "slave",
       bad(sentence("a replica{}{}: it takes no locks", master.empty() ? "" : " of " + master,
                    facts.info.text("master_link_status") == "down" ? ", which it has lost" : ""),
           topology == Topology::quorum   ? "name independent servers"
           : topology != Topology::single ? "look at the last failover"
           : master.empty()               ? "name its master"
                                          : to + "://" + master),
       ends},
      {"role", mode == "cluster" && topology != Topology::cluster,
       bad("a node of a Cluster: most keys live on others", to + "+cluster://" + address), ends},
      {"role", role.empty(), not_told(refusals(facts))},
      {"role", true, good(role == "active-replica" ? "active replica" : escaped(role))},
  });
}

/// `... expires in 3 days` or `... has expired`; empty if it is valid for longer.
std::string expiry_text(const char* whose, WallTime expires, WallTime now) {
  constexpr int warned_of = 14;
  const auto left = std::chrono::floor<std::chrono::days>(expires - now).count();
  if (left >= warned_of) return "";
  return sentence("{} certificate {}", whose,
                  left < 0 ? "has expired" : "expires in " + counted(left, "day"));
}

Finding check_certificates(const TlsFacts& tls, WallTime now) {
  std::string expiry = expiry_text("the server's", tls.expires, now);
  if (expiry.empty() && tls.own_expires)
    expiry = expiry_text("the client's", *tls.own_expires, now);
  if (!expiry.empty()) return warn(tls.version + ", but " + expiry, "renew it");
  return good(sentence("{}, {}, certificate of {} until {}", tls.version, tls.cipher, tls.subject,
                       iso8601(tls.expires).substr(0, 10)));
}

/// The missing rights to run scripts, or all others, each after a blank.
std::string missing_rights(const ServerFacts& facts, bool to_scripts) {
  std::string rights;
  for (const std::string& each : facts.missing) {
    if ((each == "+eval" || each == "+evalsha") == to_scripts) rights += " " + each;
  }
  return rights;
}

Findings check_access(const ServerFacts& facts) {
  const Endpoint& endpoint = facts.endpoint;
  const bool here = endpoint.is_unix() || is_this_host(endpoint.host);
  const std::string user =
      escaped(facts.user.empty() ? endpoint.user.value_or("default") : facts.user);
  const bool tried = facts.trial.has_value();
  const Cause cause = tried ? facts.trial->trouble.cause : Cause::none;
  const std::string no_scripts = missing_rights(facts, true);
  const std::string no_rights = missing_rights(facts, false);
  // Scripts have a check of their own, because without them no other right matters.
  const bool runs_scripts = no_scripts.empty() && facts.no_scripts.empty();
  const bool answers_all = facts.info.refusal.empty() && facts.config.refusal.empty();
  return first_rows({
      {"tls", facts.tls.has_value(),
       check_certificates(facts.tls.value_or(TlsFacts{}), facts.seen_at)},
      {"tls", endpoint.is_unix(), good("none, on a Unix socket")},
      {"tls", here, good("none, on this host")},
      {"tls", !endpoint.password, good("none")},
      {"tls", true,
       warn("none: anyone on the network path can read the password and change locks",
            "rediss:// in --server, with TLS on the server")},
      {"user", endpoint.password.has_value(), good(user + ", by password")},
      {"user", endpoint.tls && !endpoint.tls->certificate.empty(), good(user)},
      {"user", here, good(user + ", without a password")},
      {"user", true,
       warn(user + ", without a password: anyone with access to the port can take any lock away",
            "dlock doctor --acl prints a user; then protect the default one")},
      {"scripts", tried && !facts.no_scripts.empty(),
       bad("the server runs none, and a dlock lock is one (" + facts.no_scripts + ")",
           "enable Lua (Garnet: start it with --lua), or another server")},
      {"scripts", tried && !no_scripts.empty(),
       bad("the user may run none, and a dlock lock is one", "ACL SETUSER " + user + no_scripts)},
      {"scripts", tried, good("Lua runs")},
      {"rights", tried && !no_rights.empty(),
       bad("the user lacks" + no_rights, "ACL SETUSER " + user + no_rights)},
      {"rights", tried && !facts.absent.empty(),
       bad("the server lacks the commands " + joined(facts.absent, " "),
           "another server, or end their renaming")},
      {"rights", tried,
       good(sentence(
           "all {}that dlock needs{}", runs_scripts ? "" : "others ",
           answers_all ? "" : ", not all that this doctor asks (" + refusals(facts) + ")"))},
      {"lock", tried && runs_scripts,
       check_lock(facts.trial, advice_on(cause, "see the server's log"))},
  });
}

/// A setting by CONFIG, or by INFO, which has some settings under other names, if the user may not
/// call CONFIG.
std::optional<std::string> setting(const ServerFacts& facts, const char* name,
                                   const char* in_info) {
  const auto by_config = facts.config.text(name);
  return by_config ? by_config : facts.info.text(in_info);
}

/// How much of the data survives a crash.
enum class Keeping { unknown, nothing, snapshots, most, last_second, all };

Keeping keeping_of(const ServerFacts& facts) {
  const auto appends = setting(facts, "appendonly", "aof_enabled");
  if (!appends) return Keeping::unknown;
  if (appends != "yes" && appends != "1") {
    return facts.config.text("save") == "" ? Keeping::nothing : Keeping::snapshots;
  }
  const auto fsync = facts.config.text("appendfsync");
  const bool skips_some = facts.config.text("no-appendfsync-on-rewrite") == "yes";
  if (fsync == "no" || (fsync == "always" && skips_some)) return Keeping::most;
  return fsync == "always" ? Keeping::all : Keeping::last_second;
}

/// The data that the server may lose, and when.
Findings check_data(const ServerFacts& facts) {
  const auto policy = setting(facts, "maxmemory-policy", "maxmemory_policy");
  const auto limit = setting(facts, "maxmemory", "maxmemory");
  const std::string evicts = escaped(policy.value_or(""));
  const auto told_used = facts.info.number("used_memory");
  const auto told_most = facts.info.number("maxmemory");
  const long long used = told_used.value_or(0), most = told_most.value_or(0);
  const std::string memory = size_text(used) + " used of " + size_text(most);
  const std::string make_room = "raise maxmemory, or make room";
  const bool is_node = facts.options.topology == Topology::quorum;
  const milliseconds quarantine = facts.quarantined_for.value_or(milliseconds(0));
  return first_rows({
      {"eviction", !policy || !limit, not_told(refusals(facts))},
      {"eviction", limit == "0", good("none: maxmemory 0 (policy " + evicts + ")")},
      {"eviction", policy == "noeviction", good("none: noeviction")},
      {"eviction", true,
       bad(evicts + ": a full server evicts held locks, and another client can acquire them",
           "CONFIG SET maxmemory-policy noeviction")},
      {"memory", !told_used || !told_most, not_told(refusals(facts))},
      {"memory", most == 0, good(size_text(used) + " used, no limit set")},
      {"memory", used >= most, bad(memory + ": full", make_room)},
      {"memory", used > most / 10 * 9,
       warn(memory + ": once it is full, no lock can be taken", make_room)},
      {"memory", true, good(memory)},
      {"restart", is_node,
       good(keeping_of(facts) == Keeping::all
                ? "appendonly, appendfsync always: votes again at once"
                : "has no vote for two minutes afterwards")},
      {"vote", is_node && facts.trial && !facts.quarantined_for,
       not_told("the lock that was tried")},
      {"vote", is_node && facts.trial && quarantine == milliseconds(0), good("has one")},
      {"vote", is_node && facts.trial,
       warn(sentence("none for another {}: restarted or flushed, or it has evicted keys: it may "
                     "have forgotten a lease",
                     human_duration(quarantine)),
            "wait; appendonly yes and appendfsync always keep the vote over a restart, if dlock's "
            "user may CONFIG GET")},
  });
}

Findings check_persistence(const ServerFacts& facts) {
  const Keeping keeping = keeping_of(facts);
  const std::string fsync = facts.config.shown("appendfsync");
  const std::string append = "CONFIG SET appendonly yes, and in its redis.conf";
  return first_rows({
      {"persistence", facts.info.text("aof_last_write_status").value_or("ok") != "ok",
       bad("writing to disk fails", "fix its disk: see its log")},
      {"persistence", keeping == Keeping::unknown, not_told(refusals(facts))},
      {"persistence", keeping == Keeping::nothing,
       warn("none: a restart forgets held locks, so two may run at once; fences then depend only "
            "on its clock",
            append)},
      {"persistence", keeping == Keeping::snapshots,
       warn("snapshots at most: a crash forgets the locks since the last one; fences then depend "
            "only on its clock",
            append)},
      {"persistence", keeping == Keeping::most && fsync == "always",
       warn("no-appendfsync-on-rewrite yes: while its log is rewritten, a power cut forgets the "
            "newest locks",
            "CONFIG SET no-appendfsync-on-rewrite no")},
      {"persistence", keeping == Keeping::most,
       warn("appendonly, appendfsync no: a power cut forgets half a minute of locks",
            "CONFIG SET appendfsync everysec, or always")},
      {"persistence", keeping == Keeping::last_second,
       good(sentence("appendonly, appendfsync {}: a power cut may forget the last second's locks",
                     fsync.empty() ? "not told (" + refusals(facts) + ")" : fsync))},
      {"persistence", true,
       good("appendonly, appendfsync always: locks and fences outlive a crash")},
  });
}

struct Replicas {
  long long connected = 0;
  long long in_step = 0;
  long long lag = 0;  ///< of the slowest replica that is in step, in seconds
};

Replicas replicas_of(const ServerFacts& facts) {
  constexpr long long usual_lag = 10;
  const auto told_lag = facts.config.number("min-replicas-max-lag").value_or(0);
  const auto most_lag = told_lag > 0 ? told_lag : usual_lag;
  Replicas all;
  all.connected = facts.info.number("connected_slaves").value_or(0);
  for (long long i = 0; i < all.connected; ++i) {
    // Such as `ip=10.0.0.2,port=6379,state=online,offset=42,lag=1`.
    const std::string line = facts.info.text("slave" + std::to_string(i)).value_or("");
    const auto at = line.find("lag=");
    if (at == std::string::npos || line.find("state=online") == std::string::npos) continue;
    const auto lag = parse_number(line.substr(at + 4, line.find(',', at) - at - 4), 0, most_lag);
    if (!lag) continue;
    ++all.in_step;
    all.lag = std::max(all.lag, *lag);
  }
  return all;
}

Findings check_replication(const ServerFacts& facts) {
  const auto told_least = facts.config.number("min-replicas-to-write");
  const long long least = told_least.value_or(0);
  const Replicas replicas = replicas_of(facts);
  const std::string there = counted(replicas.connected, "replica");
  const std::string too_few =
      ", but " + counted(replicas.in_step, "replica") + " in step: no lock can be taken";
  const bool none = replicas.connected == 0;
  const bool behind_sentinel = facts.options.topology == Topology::sentinel;
  return first_rows({
      {"replication", !facts.info.number("connected_slaves"), not_told(refusals(facts))},
      {"replication", facts.options.replicas > replicas.in_step,
       bad(sentence("--replicas {}{}", facts.options.replicas, too_few),
           "connect more replicas, or a smaller --replicas")},
      {"replication", least > replicas.in_step,
       bad(sentence("min-replicas-to-write {}{}", least, too_few), "bring its replicas back")},
      {"replication", replicas.in_step < replicas.connected,
       warn(sentence("{} of {} not in step: a failover to one forgets locks",
                     counted(replicas.connected - replicas.in_step, "replica"), replicas.connected),
            "see INFO replication, there and here")},
      {"replication", facts.options.topology == Topology::cluster && none,
       warn("no replica: if this master fails, its locks are lost", "give every master a replica")},
      {"replication", behind_sentinel && none,
       warn("no replica: there is nothing to fail over to", "connect a replica")},
      {"replication", behind_sentinel && told_least == 0,
       warn(there + ", min-replicas-to-write 0: a master cut off from them goes on granting locks "
                    "that the next one does not know",
            "CONFIG SET min-replicas-to-write 1, on each of them")},
      {"replication", none, good("no replicas")},
      {"replication", true,
       good(sentence("{}, at most {} s behind{}", there, replicas.lag,
                     least > 0 ? sentence(", min-replicas-to-write {}", least) : ""))},
  });
}

/// How safe locks on this server are, and why.
Findings check_label(const ServerFacts& facts) {
  const Keeping keeping = keeping_of(facts);
  const bool replicated = facts.options.topology != Topology::single ||
                          facts.info.number("connected_slaves").value_or(0) > 0;
  const std::string label = "best effort: ";
  return first_rows({
      {"label", replicated,
       good(sentence("{}replication is asynchronous, so a failover may forget the newest locks{}",
                     label, facts.options.replicas > 0 ? ", rarely with --replicas" : ""))},
      {"label", keeping == Keeping::nothing,
       good(label + "if this one server restarts, every lock is forgotten")},
      {"label", keeping == Keeping::snapshots,
       good(label + "if this one server crashes, it goes back to its last snapshot")},
      {"label", keeping == Keeping::last_second,
       good(label + "if this one server loses power, its last second is forgotten")},
      {"label", keeping == Keeping::all,
       good(label + "locks are lost with this one server's disk, and with a replica put in its "
                    "place")},
      {"label", true, good(label + "if this one server crashes, it may forget locks")},
  });
}

Findings check_times(const ServerFacts& facts) {
  const bool is_node = facts.options.topology == Topology::quorum;
  const milliseconds ttl = facts.options.ttl;
  const auto told_up = facts.info.number("uptime_in_seconds");
  const std::chrono::seconds up(told_up.value_or(0));
  const std::string started = "started " + human_duration(up) + " ago";
  const auto left = std::chrono::ceil<std::chrono::seconds>(ttl - up);
  const milliseconds node_timeout(facts.config.number("cluster-node-timeout").value_or(0));
  const auto idle = facts.config.number("timeout").value_or(0);
  return first_rows({
      {"uptime", !is_node && !told_up, not_told(refusals(facts))},
      {"uptime", !is_node && (up >= ttl || keeping_of(facts) == Keeping::all), good(started)},
      {"uptime", !is_node,
       warn(sentence("{}, less than the ttl of {}: an earlier holder may still run", started,
                     human_duration(ttl)),
            "trust new locks in " + human_duration(left))},
      {"clock", true, check_clock(facts.clock)},
      {"failover", facts.options.topology == Topology::cluster && node_timeout.count() > 0,
       check_failover(node_timeout, "cluster-node-timeout", ttl)},
      {"idle", idle > 0,
       good(sentence("connections idle for {} s are closed; dlock reconnects", idle))},
  });
}

}  // namespace

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
  append(all, check_access(facts));
  append(all, check_data(facts));
  const bool is_node = facts.options.topology == Topology::quorum;
  if (!is_node) append(all, check_persistence(facts));
  append(all, check_replication(facts));
  append(all, check_times(facts));
  if (!is_node) append(all, check_label(facts));
  return all;
}

}  // namespace dlock
