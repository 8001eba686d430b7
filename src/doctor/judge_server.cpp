#include <array>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/advice.hpp"
#include "doctor/ask.hpp"
#include "doctor/judge.hpp"
#include "doctor/words.hpp"

namespace dlock {
namespace {

Finding judge_reach(const ServerFacts& facts, const DoctorOptions& exam) {
  const std::string name = "reach";
  if (!facts.unreachable.empty()) {
    return bad(name, facts.unreachable.text, advice_on_reach(facts.unreachable.cause));
  }
  const std::string text = "connected in " + span_text(facts.connected_in) + ", answers in " +
                           span_text(facts.round_trip);
  if (!facts.broke_off.empty()) {
    return bad(name, text + ", then broke off: " + facts.broke_off, "see the server's log");
  }
  if (facts.info.text("loading") == "1") {
    const auto done = facts.info.text("loading_loaded_perc");
    return bad(name,
               text + ", but still loads its data" + (done ? " (" + escaped(*done) + " %)" : ""),
               "wait until it has");
  }
  // A renewal must find room for some attempts within ttl/3.
  if (facts.round_trip > exam.ttl / 30) {
    return warn(name, text + ": slow for a ttl of " + human_duration(exam.ttl),
                "a nearer server, or a longer -t");
  }
  return good(name, text);
}

struct Engine {
  std::string name;
  std::string version;
  bool tested = false;  ///< with dlock
};

/// The field of INFO that only this engine has. KeyDB has none with its name: "# KeyDB" begins with
/// mvcc_depth (https://docs.keydb.dev/docs/commands/#info).
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
  const std::string name = "engine";
  const Engine engine = engine_of(facts);
  if (engine.name.empty()) return not_told(name, refusals(facts));
  const std::string text = engine.name + " " + engine.version;
  const bool active = role_of(facts) == "active-replica" ||
                      facts.config.text("active-replica") == "yes" ||
                      facts.config.text("multi-master") == "yes";
  if (active) {
    return bad(name, text + " with active replicas: two servers may grant one lock",
               "active-replica no and multi-master no, or another server");
  }
  if (engine.tested && is_older(engine.version, {6, 2})) {
    return bad(name, text + " is older than 6.2, the least dlock works with",
               "upgrade to Redis 6.2, Valkey 7.2 or newer");
  }
  if (!engine.tested) {
    return warn(name, text + ": dlock is tested only with Redis and Valkey",
                "try it under your load before you rely on it");
  }
  return good(name, text);
}

std::string master_of(const ServerFacts& facts) {
  const auto host = facts.info.text("master_host").value_or(facts.role.text("host").value_or(""));
  const auto port = facts.info.text("master_port").value_or(facts.role.text("port").value_or(""));
  return host.empty() ? "" : address_of(host, port);
}

Finding judge_role(const ServerFacts& facts, const DoctorOptions& exam) {
  const std::string name = "role";
  const std::string role = role_of(facts);
  const std::string mode = mode_of(facts);
  const std::string scheme = facts.endpoint.tls ? "rediss" : "redis";
  if (role == "sentinel" || mode == "sentinel") {
    return bad(name, "a Sentinel, which holds no data",
               "--server " + scheme + "+sentinel://" + facts.endpoint.address() + "/NAME");
  }
  if (role == "slave") {
    const std::string master = master_of(facts);
    const bool down = facts.info.text("master_link_status") == "down";
    return bad(name,
               "a replica" + (master.empty() ? "" : " of " + master) +
                   (down ? ", which it has lost" : "") + ": it takes no locks",
               exam.topology == Topology::quorum   ? "name independent servers"
               : exam.topology != Topology::single ? "look at the last failover"
               : master.empty()                    ? "name its master"
                                                   : "--server " + scheme + "://" + master);
  }
  if (mode == "cluster" && exam.topology != Topology::cluster) {
    return bad(name, "a node of a Cluster: most keys live on others",
               "--server " + scheme + "+cluster://" + facts.endpoint.address());
  }
  if (role.empty()) return not_told(name, refusals(facts));
  return good(name, escaped(role == "active-replica" ? "active replica" : role));
}

bool is_here(const Endpoint& endpoint) { return endpoint.is_unix() || is_this_host(endpoint.host); }

/// `expires in 3 days`, or that it has; empty while there is time.
std::string expiry_text(const char* whose, WallTime expires, WallTime now) {
  constexpr int warned_of = 14;
  const auto left = std::chrono::floor<std::chrono::days>(expires - now).count();
  if (left >= warned_of) return "";
  return std::string(whose) + " certificate " +
         (left < 0 ? "has expired" : "expires in " + counted(left, "day"));
}

Finding judge_tls(const ServerFacts& facts) {
  const std::string name = "tls";
  const Endpoint& endpoint = facts.endpoint;
  if (!facts.tls) {
    if (endpoint.is_unix()) return good(name, "none, on a Unix socket");
    if (is_here(endpoint)) return good(name, "none, on this host");
    if (!endpoint.password) return good(name, "none");
    return warn(name, "none: anyone on the network path can read the password and change locks",
                "rediss:// in --server, with TLS on the server");
  }
  const TlsFacts& tls = *facts.tls;
  std::string expiry = expiry_text("the server's", tls.expires, facts.seen_at);
  if (expiry.empty() && tls.own_expires) {
    expiry = expiry_text("the client's", *tls.own_expires, facts.seen_at);
  }
  if (!expiry.empty()) return warn(name, tls.version + ", but " + expiry, "renew it");
  return good(name, tls.version + ", " + tls.cipher + ", certificate of " + tls.subject +
                        " until " + iso8601(tls.expires).substr(0, 10));
}

Finding judge_user(const ServerFacts& facts) {
  const Endpoint& endpoint = facts.endpoint;
  const std::string user =
      facts.user.empty() ? escaped(endpoint.user.value_or("default")) : escaped(facts.user);
  if (endpoint.password) return good("user", user + ", by password");
  if (endpoint.tls && !endpoint.tls->certificate.empty()) return good("user", user);
  if (is_here(endpoint)) return good("user", user + ", without a password");
  return warn("user",
              user + ", without a password: anyone with access to the port can take any lock away",
              "dlock doctor --acl prints a user; then protect the default one");
}

/// The scripts and the other rights apart: without scripts nothing else counts.
Findings judge_rights(const ServerFacts& facts) {
  std::vector<std::string> missing;
  std::vector<std::string> of_scripts;
  for (const std::string& word : facts.missing) {
    (word == "+eval" || word == "+evalsha" ? of_scripts : missing).push_back(word);
  }
  const std::string user =
      facts.user.empty() ? facts.endpoint.user.value_or("default") : facts.user;
  const std::string grant = "ACL SETUSER " + escaped(user) + " ";
  Findings findings;
  if (!facts.no_scripts.empty()) {
    findings.push_back(
        bad("scripts", "the server runs none, and a dlock lock is one (" + facts.no_scripts + ")",
            "enable Lua (Garnet: start it with --lua), or another server"));
  } else if (!of_scripts.empty()) {
    findings.push_back(bad("scripts", "the user may run none, and a dlock lock is one",
                           grant + joined(of_scripts, " ")));
  } else {
    findings.push_back(good("scripts", "Lua runs"));
  }
  if (!missing.empty()) {
    findings.push_back(
        bad("rights", "the user lacks " + joined(missing, " "), grant + joined(missing, " ")));
  } else if (!facts.absent.empty()) {
    findings.push_back(bad("rights", "the server lacks the commands " + joined(facts.absent, " "),
                           "another server, or end their renaming"));
  } else {
    const std::string silent = facts.info.refusal.empty() && facts.config.refusal.empty()
                                   ? ""
                                   : ", not all that this doctor asks (" + refusals(facts) + ")";
    const bool scripts = findings.front().level == Level::ok;
    findings.push_back(good(
        "rights", (scripts ? "all that dlock needs" : "all others that dlock needs") + silent));
  }
  return findings;
}

Finding judge_lock(const ServerFacts& facts) {
  const std::string name = "lock";
  if (!facts.trial.trouble.empty()) {
    return bad(name, "cannot be held: " + facts.trial.trouble.text,
               advice_on(facts.trial.trouble.cause, "see the server's log"));
  }
  return good(name, "acquired, handed over in " + span_text(facts.trial.handed_over_in) +
                        ", renewed, released");
}

}  // namespace

Findings judge_server(const ServerFacts& facts, const DoctorOptions& exam) {
  Findings findings{judge_reach(facts, exam)};
  if (!facts.unreachable.empty()) return findings;
  findings.push_back(judge_engine(facts));
  findings.push_back(judge_role(facts, exam));
  // All the rest would be about the wrong server.
  if (findings.back().level == Level::error) return findings;
  findings.push_back(judge_tls(facts));
  findings.push_back(judge_user(facts));
  if (facts.tried) {
    for (Finding& each : judge_rights(facts)) findings.push_back(std::move(each));
    if (findings[findings.size() - 2].level == Level::ok) findings.push_back(judge_lock(facts));
  }
  findings.push_back(judge_eviction(facts));
  findings.push_back(judge_memory(facts));
  const bool alone = exam.topology != Topology::quorum;
  findings.push_back(alone ? judge_persistence(facts) : judge_restart(facts));
  if (!alone && facts.tried) findings.push_back(judge_vote(facts));
  findings.push_back(judge_replication(facts, exam));
  if (alone) findings.push_back(judge_uptime(facts, exam));
  findings.push_back(judge_clock(facts.clock));
  const auto node_timeout = facts.config.number("cluster-node-timeout");
  if (exam.topology == Topology::cluster && node_timeout) {
    findings.push_back(judge_failover(milliseconds(*node_timeout), "cluster-node-timeout", exam));
  }
  const auto idle = facts.config.number("timeout").value_or(0);
  if (idle > 0) {
    findings.push_back(good("idle", "connections idle for " + std::to_string(idle) +
                                        " s are closed; dlock reconnects"));
  }
  if (alone) findings.push_back(judge_label(facts, exam));
  return findings;
}

}  // namespace dlock
