#include "doctor/judge_zookeeper.hpp"

#include <algorithm>
#include <set>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/advice.hpp"
#include "doctor/words.hpp"

namespace dlock {
namespace {

constexpr ShortVersion least_zookeeper{3, 5};

const ZooKeeperServerFacts* first_reached(const ZooKeeperFacts& facts) {
  const auto found = std::find_if(facts.servers.begin(), facts.servers.end(),
                                  [](const auto& each) { return each.unreachable.empty(); });
  return found == facts.servers.end() ? nullptr : &*found;
}

/// Whether any server told its mode.
bool tells_mode(const ZooKeeperFacts& facts) {
  return std::any_of(facts.servers.begin(), facts.servers.end(),
                     [](const auto& each) { return !each.mode.empty(); });
}

/// Whether the server has lost the others.
bool is_cut_off(const ZooKeeperServerFacts& server) {
  return server.mode.empty() && server.refusal.find("not currently serving") != std::string::npos;
}

std::string mode_text(const ZooKeeperServerFacts& server) {
  if (!server.mode.empty()) return escaped(server.mode);
  return is_cut_off(server) ? "does not serve" : "does not tell its mode";
}

/// Why no mode is told.
std::string why_untold(const ZooKeeperServerFacts& server) {
  return server.refusal.empty() ? "srvr" : "srvr: " + escaped(server.refusal);
}

bool is_standalone(const ZooKeeperFacts& facts) {
  return std::any_of(facts.servers.begin(), facts.servers.end(),
                     [](const auto& each) { return each.mode == "standalone"; });
}

Finding judge_zookeeper_reach(const ZooKeeperFacts& facts) {
  const std::string name = "reach";
  const ZooKeeperServerFacts* reached = first_reached(facts);
  if (reached == nullptr) {
    const Fault& fault = facts.servers.front().unreachable;
    return bad(name, fault.text, advice_on_reach(fault.cause));
  }
  const std::string text = "answers in " + span_text(reached->answered_in);
  for (const ZooKeeperServerFacts& each : facts.servers) {
    if (each.unreachable.empty()) continue;
    return warn(name, text + "; " + each.unreachable.text,
                "it is asked if the others fail: start it, or name others");
  }
  return good(name, text);
}

Finding judge_zookeeper_engine(const ZooKeeperFacts& facts) {
  const std::string name = "engine";
  std::set<std::string> versions;
  for (const ZooKeeperServerFacts& each : facts.servers) {
    if (!each.version.empty()) versions.insert(each.version);
  }
  if (versions.empty()) return not_told(name, why_untold(*first_reached(facts)));
  std::string text = "ZooKeeper";
  for (const std::string& version : versions) {
    text += (version == *versions.begin() ? " " : ", ") + escaped(version);
  }
  for (const std::string& version : versions) {
    if (is_older(version, least_zookeeper)) {
      return bad(name, text + ": dlock needs 3.5 or later", "upgrade it");
    }
  }
  return good(name, text);
}

Finding judge_zookeeper_session(const ZooKeeperFacts& facts) {
  const std::string name = "session";
  if (!facts.trouble.empty()) {
    return bad(name, facts.trouble,
               "most of its servers must run and reach each other, and the user needs rights");
  }
  const std::string text = "of " + human_duration(facts.session) + ", writes and reads in " +
                           span_text(facts.round_trip);
  if (facts.session <= facts.session_asked) return good(name, text);
  return warn(name,
              text + ": a lock whose holder was killed is free after that, not after " +
                  human_duration(facts.session_asked),
              "a smaller minSessionTimeout on the servers, or a longer -t");
}

Finding judge_zookeeper_servers(const ZooKeeperFacts& facts) {
  const std::string name = "quorum";
  if (is_standalone(facts)) return good(name, "one server, whose failure nothing survives");
  std::string text;
  for (const ZooKeeperServerFacts& each : facts.servers) {
    if (!each.unreachable.empty()) continue;
    text += (text.empty() ? "" : ", ") + each.address + " " + mode_text(each);
  }
  if (std::any_of(facts.servers.begin(), facts.servers.end(), is_cut_off)) {
    return warn(name, text, "see its log, and its network to the others");
  }
  if (!tells_mode(facts)) return not_told(name, why_untold(*first_reached(facts)));
  return good(name, text);
}

Finding judge_zookeeper_clock(const ZooKeeperFacts& facts) {
  const std::string name = "clock";
  constexpr std::chrono::seconds tolerated{2};
  const auto off = std::chrono::abs(std::chrono::floor<milliseconds>(facts.ahead));
  if (off < tolerated) return good(name, "the leader's, within " + span_text(tolerated));
  return warn(name,
              "the leader's is " + human_duration(off) +
                  (facts.ahead.count() > 0 ? " ahead of" : " behind") + " this host's",
              "leases go by the leader's, and times shown may look odd: run NTP on both");
}

Finding judge_zookeeper_lock(const ZooKeeperFacts& facts) {
  const std::string name = "lock";
  if (!facts.trial.trouble.empty()) {
    return bad(name, "cannot be held: " + facts.trial.trouble.text,
               "see the findings above, and dlock doctor --acl for the rights");
  }
  return good(name, "acquired, handed over in " + span_text(facts.trial.handed_over_in) +
                        ", renewed, released");
}

}  // namespace

std::string zookeeper_label(const ZooKeeperFacts& facts) {
  if (!tells_mode(facts)) return "best effort: whether a majority keeps the locks is not known";
  return is_standalone(facts) ? "as safe as its disk" : "safe while a majority lives";
}

Findings judge_zookeeper(const ZooKeeperFacts& facts, milliseconds ttl) {
  Findings findings{judge_zookeeper_reach(facts)};
  if (first_reached(facts) == nullptr) return findings;
  findings.push_back(judge_zookeeper_engine(facts));
  findings.push_back(judge_zookeeper_session(facts));
  if (findings.back().level == Level::error) return findings;
  if (facts.round_trip > ttl / 30) {
    findings.back() =
        warn("session", findings.back().text + ": slow for a ttl of " + human_duration(ttl),
             "a nearer server, or a longer -t");
  }
  findings.push_back(judge_zookeeper_servers(facts));
  findings.push_back(judge_zookeeper_clock(facts));
  if (facts.here) {
    findings.push_back(good("tls", "none, on this host"));
  } else {
    findings.push_back(warn("tls", "none: anyone on the network path can change locks",
                            "a network of its own, or a tunnel"));
  }
  findings.push_back(good(
      "user", facts.user.empty() ? "none: everybody may change the nodes"
                                 : escaped(facts.user) + ", whose nodes are closed to others"));
  if (facts.tried) findings.push_back(judge_zookeeper_lock(facts));
  findings.push_back(good("label", zookeeper_label(facts)));
  return findings;
}

}  // namespace dlock
