#include "doctor/redis_checks.hpp"

#include <array>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "doctor/examine_redis.hpp"
#include "doctor/finding.hpp"

namespace dlock {
namespace {

Finding judge_reach(const ServerFacts& facts) {
  const std::string advice = advice_on_reach(facts.unreachable.cause);
  Finding reach = check_reach(facts, facts.exam.ttl, advice.c_str(), advice.c_str());
  if (reach.level == Level::error || facts.info.text("loading") != "1") return reach;
  const auto done = facts.info.text("loading_loaded_perc");
  return bad(
      reach.text + ", but still loads its data" + (done ? " (" + escaped(*done) + " %)" : ""),
      "wait until it has");
}

struct Engine {
  std::string name;
  std::string version;
  bool tested = false;  ///< together with dlock
};

/// Tells the engine by a field of INFO that only this engine has. KeyDB has no field with its name;
/// its section "# KeyDB" begins with mvcc_depth (https://docs.keydb.dev/docs/commands/#info).
Engine engine_of(const ServerFacts& facts) {
  const ServerInfo& info = facts.info;
  const auto version = [&](const char* field) { return escaped(info.text(field).value_or("")); };
  if (info.text("dragonfly_version")) return {"Dragonfly", version("dragonfly_version"), false};
  if (info.text("garnet_version")) return {"Garnet", version("garnet_version"), false};
  if (info.text("kvrocks_version")) return {"Kvrocks", version("kvrocks_version"), false};
  if (info.text("valkey_version")) return {"Valkey", version("valkey_version"), true};
  if (info.text("mvcc_depth")) return {"KeyDB", version("redis_version"), false};
  if (info.text("redis_version")) return {"Redis", version("redis_version"), true};
  const auto server = facts.hello.text("server");
  const auto told = escaped(facts.hello.text("version").value_or(""));
  if (server == "redis" || server == "valkey") {
    return {server == "valkey" ? "Valkey" : "Redis", told, true};
  }
  return {escaped(server.value_or("")), told, false};
}

Finding judge_engine(const ServerFacts& facts) {
  const Engine engine = engine_of(facts);
  if (engine.name.empty()) return not_told(refusals(facts));
  const std::string text = engine.name + " " + engine.version;
  const bool active = role_of(facts) == "active-replica" ||
                      facts.config.text("active-replica") == "yes" ||
                      facts.config.text("multi-master") == "yes";
  if (active) {
    return bad(text + " with active replicas: two servers may grant one lock",
               "active-replica no and multi-master no, or another server");
  }
  if (engine.tested && is_older(engine.version, {6, 2})) {
    return bad(text + " is older than 6.2, the least dlock works with",
               "upgrade to Redis 6.2, Valkey 7.2 or newer");
  }
  if (!engine.tested) {
    return warn(text + ": dlock is tested only with Redis and Valkey",
                "try it under your load before you rely on it");
  }
  return good(text);
}

std::string master_of(const ServerFacts& facts) {
  const auto host = facts.info.text("master_host").value_or(facts.role.text("host").value_or(""));
  const auto port = facts.info.text("master_port").value_or(facts.role.text("port").value_or(""));
  return host.empty() ? "" : address_of(host, port);
}

Finding judge_role(const ServerFacts& facts) {
  const std::string role = role_of(facts);
  const std::string mode = mode_of(facts);
  const std::string scheme = facts.endpoint.tls ? "rediss" : "redis";
  if (role == "sentinel" || mode == "sentinel") {
    return bad("a Sentinel, which holds no data",
               "--server " + scheme + "+sentinel://" + facts.endpoint.address() + "/NAME");
  }
  if (role == "slave") {
    const std::string master = master_of(facts);
    const bool down = facts.info.text("master_link_status") == "down";
    return bad("a replica" + (master.empty() ? "" : " of " + master) +
                   (down ? ", which it has lost" : "") + ": it takes no locks",
               facts.exam.topology == Topology::quorum   ? "name independent servers"
               : facts.exam.topology != Topology::single ? "look at the last failover"
               : master.empty()                          ? "name its master"
                                                         : "--server " + scheme + "://" + master);
  }
  if (mode == "cluster" && facts.exam.topology != Topology::cluster) {
    return bad("a node of a Cluster: most keys live on others",
               "--server " + scheme + "+cluster://" + facts.endpoint.address());
  }
  if (role.empty()) return not_told(refusals(facts));
  return good(escaped(role == "active-replica" ? "active replica" : role));
}

bool is_here(const Endpoint& endpoint) { return endpoint.is_unix() || is_this_host(endpoint.host); }

/// `... expires in 3 days` or `... has expired`; empty if it is valid for longer.
std::string expiry_text(const char* whose, WallTime expires, WallTime now) {
  constexpr int warned_of = 14;
  const auto left = std::chrono::floor<std::chrono::days>(expires - now).count();
  if (left >= warned_of) return "";
  return std::string(whose) + " certificate " +
         (left < 0 ? "has expired" : "expires in " + counted(left, "day"));
}

Finding judge_tls(const ServerFacts& facts) {
  const Endpoint& endpoint = facts.endpoint;
  if (!facts.tls) {
    if (endpoint.is_unix()) return good("none, on a Unix socket");
    if (is_here(endpoint)) return good("none, on this host");
    if (!endpoint.password) return good("none");
    return warn("none: anyone on the network path can read the password and change locks",
                "rediss:// in --server, with TLS on the server");
  }
  const TlsFacts& tls = *facts.tls;
  std::string expiry = expiry_text("the server's", tls.expires, facts.seen_at);
  if (expiry.empty() && tls.own_expires) {
    expiry = expiry_text("the client's", *tls.own_expires, facts.seen_at);
  }
  if (!expiry.empty()) return warn(tls.version + ", but " + expiry, "renew it");
  return good(tls.version + ", " + tls.cipher + ", certificate of " + tls.subject + " until " +
              iso8601(tls.expires).substr(0, 10));
}

Finding judge_user(const ServerFacts& facts) {
  const Endpoint& endpoint = facts.endpoint;
  const std::string user =
      facts.user.empty() ? escaped(endpoint.user.value_or("default")) : escaped(facts.user);
  if (endpoint.password) return good(user + ", by password");
  if (endpoint.tls && !endpoint.tls->certificate.empty()) return good(user);
  if (is_here(endpoint)) return good(user + ", without a password");
  return warn(user + ", without a password: anyone with access to the port can take any lock away",
              "dlock doctor --acl prints a user; then protect the default one");
}

bool is_of_scripts(const std::string& right) { return right == "+eval" || right == "+evalsha"; }

/// The command that grants the user these rights.
std::string grant_text(const ServerFacts& facts, const std::vector<std::string>& rights) {
  const std::string user =
      facts.user.empty() ? facts.endpoint.user.value_or("default") : facts.user;
  return "ACL SETUSER " + escaped(user) + " " + joined(rights, " ");
}

/// Scripts have a check of their own, because without them no other right matters.
Finding judge_scripts(const ServerFacts& facts) {
  std::vector<std::string> missing;
  std::copy_if(facts.missing.begin(), facts.missing.end(), std::back_inserter(missing),
               is_of_scripts);
  if (!facts.no_scripts.empty()) {
    return bad("the server runs none, and a dlock lock is one (" + facts.no_scripts + ")",
               "enable Lua (Garnet: start it with --lua), or another server");
  }
  if (missing.empty()) return good("Lua runs");
  return bad("the user may run none, and a dlock lock is one", grant_text(facts, missing));
}

bool runs_scripts(const ServerFacts& facts) {
  return facts.tried && judge_scripts(facts).level == Level::ok;
}

Finding judge_rights(const ServerFacts& facts) {
  std::vector<std::string> missing;
  std::copy_if(facts.missing.begin(), facts.missing.end(), std::back_inserter(missing),
               [](const std::string& right) { return !is_of_scripts(right); });
  if (!missing.empty()) {
    return bad("the user lacks " + joined(missing, " "), grant_text(facts, missing));
  }
  if (!facts.absent.empty()) {
    return bad("the server lacks the commands " + joined(facts.absent, " "),
               "another server, or end their renaming");
  }
  const bool answers_all = facts.info.refusal.empty() && facts.config.refusal.empty();
  return good((runs_scripts(facts) ? "all that dlock needs" : "all others that dlock needs") +
              (answers_all ? "" : ", not all that this doctor asks (" + refusals(facts) + ")"));
}

Finding judge_trial(const ServerFacts& facts) {
  return check_lock(facts.trial,
                    advice_on(facts.trial.trouble.cause, "see the server's log").c_str());
}

long long node_timeout(const ServerFacts& facts) {
  return facts.config.number("cluster-node-timeout").value_or(0);
}

long long idle_seconds(const ServerFacts& facts) {
  return facts.config.number("timeout").value_or(0);
}

bool is_tried(const ServerFacts& facts) { return facts.tried; }
bool is_node(const ServerFacts& facts) { return facts.exam.topology == Topology::quorum; }
bool decides_itself(const ServerFacts& facts) { return !is_node(facts); }

constexpr Check<ServerFacts> redis_checks[] = {
    {"reach", judge_reach},
    {"engine", judge_engine},
    // After an error here the remaining checks would describe the wrong server.
    {"role", judge_role, nullptr, true},
    {"tls", judge_tls},
    {"user", judge_user},
    {"scripts", judge_scripts, is_tried},
    {"rights", judge_rights, is_tried},
    {"lock", judge_trial, runs_scripts},
    {"eviction", judge_eviction},
    {"memory", judge_memory},
    {"persistence", judge_persistence, decides_itself},
    {"restart", judge_restart, is_node},
    {"vote", judge_vote, [](const ServerFacts& facts) { return is_node(facts) && facts.tried; }},
    {"replication", judge_replication},
    {"uptime", judge_uptime, decides_itself},
    {"clock", [](const ServerFacts& facts) { return check_clock(facts.clock); }},
    {"failover",
     [](const ServerFacts& facts) {
       return judge_failover(milliseconds(node_timeout(facts)), "cluster-node-timeout", facts.exam);
     },
     [](const ServerFacts& facts) {
       return facts.exam.topology == Topology::cluster && node_timeout(facts) > 0;
     }},
    {"idle",
     [](const ServerFacts& facts) {
       return good("connections idle for " + std::to_string(idle_seconds(facts)) +
                   " s are closed; dlock reconnects");
     },
     [](const ServerFacts& facts) { return idle_seconds(facts) > 0; }},
    {"label", judge_label, decides_itself}};

}  // namespace

Findings judge_server(const ServerFacts& facts) {
  if (!facts.unreachable.empty()) return {named("reach", judge_reach(facts))};
  return run_checks(facts, redis_checks);
}

}  // namespace dlock
