#include <linux/magic.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/finding.hpp"
#include "doctor/redis_checks.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {
namespace {

constexpr const char* another_server = "is it running? --server may name others";

std::string named_master(const SentinelFacts& sentinel) {
  return address_of(sentinel.host, sentinel.port);
}

Finding judge_sentinel(const SentinelFacts& sentinel) {
  const std::string where = sentinel.endpoint.address() + ": ";
  if (sentinel.unreachable.text == "unknown command") {
    return warn(where + "it is not a sentinel",
                "name sentinels: they listen on port 26379 as a rule");
  }
  if (!sentinel.unreachable.empty()) {
    const Cause cause = sentinel.unreachable.cause;
    const bool of_the_user = cause == Cause::password_missing || cause == Cause::password_wrong ||
                             cause == Cause::password_unneeded || cause == Cause::acl;
    return warn(where + sentinel.unreachable.text,
                of_the_user ? "check --sentinel-user, --sentinel-password-file; dlock doctor --acl"
                            : advice_on(cause, another_server));
  }
  if (sentinel.host.empty()) {
    return bad(where + "it knows no master of this name",
               "SENTINEL MASTERS there lists what it knows");
  }
  if (!announced(sentinel.host, sentinel.port)) {
    return bad(where + "names a master that cannot be: " + named_master(sentinel),
               "SENTINEL MASTERS there lists what it knows");
  }
  if (!sentinel.quorum_fault.empty()) {
    return bad(where + sentinel.quorum_fault, "bring the other sentinels back");
  }
  const auto flags = sentinel.master.text("flags").value_or("");
  if (flags.find("down") != std::string::npos) {
    return bad(where + "takes " + named_master(sentinel) + " for down (" + escaped(flags) + ")",
               "look at that server, and at the network between");
  }
  const auto quorum = sentinel.master.text("quorum");
  return good(where + "names " + named_master(sentinel) +
              (quorum ? ", quorum " + escaped(*quorum) : ""));
}

Finding judge_sentinel_failover(const SentinelFacts& sentinel, const DoctorOptions& exam) {
  const auto told = sentinel.master.number("down-after-milliseconds");
  if (told) return judge_failover(milliseconds(*told), "down-after-milliseconds", exam);
  const auto& why = sentinel.master.refusal;
  return not_told("SENTINEL MASTER" + (why.empty() ? "" : ": " + why));
}

Finding judge_majority(const std::vector<const SentinelFacts*>& heard) {
  std::set<std::string> masters;
  for (const SentinelFacts* each : heard) masters.insert(named_master(*each));
  if (masters.size() > 1) {
    const std::string list = joined(masters, ", ");
    return bad("the sentinels name different masters: " + list,
               "wait for the failover to end; else SENTINEL RESET the odd one");
  }
  const auto others = heard.front()->master.number("num-other-sentinels");
  if (!others) return not_told("SENTINEL MASTER: " + heard.front()->master.refusal);
  const long long known = *others + 1;
  if (known < 3) {
    return warn(counted(known, "sentinel") + " in all: with one lost, none can fail over",
                "run three or more");
  }
  return good(counted(known, "sentinel") + " in all, and they agree");
}

Finding judge_slots(const ClusterFacts& facts) {
  int covered = 0;
  for (const ShardFacts& shard : facts.shards) {
    for (const auto& [first, last] : shard.slots) covered += last - first + 1;
  }
  const auto state = facts.info.text("cluster_state").value_or("ok");
  const std::string masters = counted(static_cast<long long>(facts.shards.size()), "master");
  if (covered != slots_of_a_cluster || state != "ok") {
    return bad("state " + escaped(state) + ", " + masters + ", " +
                   counted(slots_of_a_cluster - covered, "slot") +
                   " with nobody: keys cannot be locked",
               "redis-cli --cluster fix, or bring the nodes back");
  }
  if (!facts.open_slots.empty()) {
    return bad("slot " +
                   joined(facts.open_slots, ", ", [](int slot) { return std::to_string(slot); }) +
                   " is on its way to another master: new keys there cannot be locked "
                   "until it has arrived",
               "if the move was cut off: redis-cli --cluster fix");
  }
  if (facts.shards.size() < 3) {
    return warn(masters + ": with one lost there is no majority to fail over",
                "run three masters or more");
  }
  const auto known = facts.info.number("cluster_known_nodes");
  return good("state ok, " + masters + (known ? " of " + counted(*known, "node") : "") +
              ", all slots served");
}

/// The different findings of one check, each with the servers that have it.
std::vector<std::pair<Finding, std::vector<std::string>>> told_by(
    const std::vector<std::pair<std::string, Findings>>& servers, const std::string& check) {
  std::vector<std::pair<Finding, std::vector<std::string>>> told;
  for (const auto& [server, findings] : servers) {
    for (const Finding& each : findings) {
      if (each.check != check) continue;
      auto same = std::find_if(told.begin(), told.end(), [&](const auto& one) {
        return one.first.text == each.text && one.first.advice == each.advice;
      });
      if (same == told.end()) same = told.insert(same, {each, {}});
      same->second.push_back(server);
    }
  }
  return told;
}

}  // namespace

Findings judge_sentinels(const std::vector<SentinelFacts>& sentinels, const DoctorOptions& exam) {
  Findings findings;
  std::vector<const SentinelFacts*> heard;
  for (const SentinelFacts& each : sentinels) {
    findings.push_back(named("sentinel", judge_sentinel(each)));
    if (each.unreachable.empty() && !each.host.empty()) heard.push_back(&each);
  }
  if (heard.empty()) {
    for (Finding& each : findings) each.level = Level::error;
    return findings;
  }
  findings.push_back(named("quorum", judge_majority(heard)));
  findings.push_back(named("failover", judge_sentinel_failover(*heard.front(), exam)));
  return findings;
}

Finding judge_failover(milliseconds silence, const std::string& setting,
                       const DoctorOptions& exam) {
  const auto after = std::min<milliseconds>(silence, longest_duration);
  const std::string text = "begins after " + human_duration(after) + " of silence";
  // A holder renews every third of its ttl, so at least two thirds are left when the failover
  // begins.
  if (after < exam.ttl / 3 * 2) return good(text);
  return warn(
      text + ": too late for a ttl of " + human_duration(exam.ttl) + ", so it stops every job",
      setting + " 5000, or a longer -t");
}

Findings judge_cluster(const ClusterFacts& facts) {
  Findings findings;
  for (const auto& [address, why] : facts.silent_seeds) {
    findings.push_back(warn(address + ": " + why.text, advice_on(why.cause, another_server)));
  }
  if (!facts.shards.empty()) {
    findings.push_back(judge_slots(facts));
  } else {
    for (Finding& each : findings) each.level = Level::error;
    if (!facts.fault.empty()) {
      findings.push_back(
          bad("it names no nodes: " + facts.fault.text,
              advice_on(facts.fault.cause, "for a server on its own: --server redis://HOST")));
    } else if (findings.empty()) {
      findings.push_back(bad("no node has a slot", "redis-cli --cluster create"));
    }
  }
  for (Finding& each : findings) each.check = "cluster";
  return findings;
}

Findings merged(const std::vector<std::pair<std::string, Findings>>& servers) {
  std::vector<std::string> checks;
  for (const auto& [server, findings] : servers) {
    for (const Finding& each : findings) {
      if (std::find(checks.begin(), checks.end(), each.check) == checks.end()) {
        checks.push_back(each.check);
      }
    }
  }
  Findings all;
  for (const std::string& check : checks) {
    for (auto& [finding, who] : told_by(servers, check)) {
      const bool everybody = who.size() == servers.size() && who.size() > 1;
      finding.text = (everybody ? "all " + std::to_string(who.size()) : joined(who, ", ")) + ": " +
                     finding.text;
      all.push_back(std::move(finding));
    }
  }
  return all;
}

namespace {

/// The difference between the server's clock and this host's, from the quickest reading.
std::optional<microseconds> ahead_of_this_host(const ServerFacts& facts) {
  if (facts.clock.empty()) return std::nullopt;
  const auto nearest = std::min_element(facts.clock.begin(), facts.clock.end(),
                                        [](const ClockSample& a, const ClockSample& b) {
                                          return a.received - a.sent < b.received - b.sent;
                                        });
  return nearest->server - nearest->here;
}

/// The time until `needed` servers have a vote.
milliseconds until_there_are(std::ptrdiff_t needed, const std::vector<ServerFacts>& servers) {
  std::vector<milliseconds> waits;
  for (const ServerFacts& each : servers) {
    if (each.unreachable.empty()) waits.push_back(each.quarantined_for.value_or(milliseconds(0)));
  }
  std::sort(waits.begin(), waits.end());
  return waits[static_cast<std::size_t>(needed) - 1];
}

Finding judge_votes(const std::vector<ServerFacts>& servers) {
  const auto reached = std::count_if(servers.begin(), servers.end(), [](const ServerFacts& each) {
    return each.unreachable.empty();
  });
  const auto all = static_cast<std::ptrdiff_t>(servers.size());
  const auto needed = all / 2 + 1;
  const std::string of = std::to_string(reached) + " of " + counted(all, "server") + " reached, " +
                         std::to_string(needed) + " needed";
  if (reached < needed) return bad(of + ": no lock can be taken", "bring the others back");
  if (const auto wait = until_there_are(needed, servers); wait > milliseconds(0)) {
    return bad(of + ": no lock can be taken for another " + human_duration(wait),
               "wait until enough of them have a vote again");
  }
  if (reached < all) {
    return warn(of + ": " + std::to_string(reached - needed) + " more may fail",
                "bring the others back");
  }
  if (all % 2 == 0) {
    return warn(of + ": no more of them may fail than of " + std::to_string(all - 1),
                "name an odd number");
  }
  return good(of + ": any " + std::to_string(all - needed) + " may fail");
}

Finding judge_independence(const std::vector<ServerFacts>& servers) {
  std::map<std::string, std::string> seen;
  for (const ServerFacts& each : servers) {
    const auto process = each.info.text("run_id");
    if (!process) continue;
    const auto [other, is_new] = seen.emplace(*process, each.endpoint.address());
    if (is_new) continue;
    return bad(other->second + " and " + each.endpoint.address() + " are the same server",
               "name each server once");
  }
  if (seen.empty()) return not_told(refusals(servers.front()));
  return good("no server is named twice");
}

Finding judge_clocks(const std::vector<ServerFacts>& servers) {
  constexpr std::chrono::seconds tolerable{60};
  std::optional<microseconds> least, most;
  for (const ServerFacts& each : servers) {
    const auto ahead = ahead_of_this_host(each);
    if (!ahead) continue;
    least = std::min(least.value_or(*ahead), *ahead);
    most = std::max(most.value_or(*ahead), *ahead);
  }
  if (!least) return not_told("TIME");
  const auto apart = std::max(*most, microseconds(0)) - std::min(*least, microseconds(0));
  const std::string text = "at most " + span_text(apart) + " apart, this host's among them";
  if (apart < tolerable) return good(text);
  return bad(text + ": if a server loses its memory, fences may fall", "NTP on all of them");
}

}  // namespace

Findings judge_quorum(const std::vector<ServerFacts>& servers) {
  using Servers = std::vector<ServerFacts>;
  constexpr Check<Servers> checks[] = {
      {"majority", judge_votes},
      {"independence", judge_independence},
      {"clocks", judge_clocks},
      {"label", [](const Servers&) {
         return good(
             "at most one unexpired holder while clocks run at the same rate within 1 %, "
             "also when a minority fails or forgets");
       }}};
  return run_checks(servers, checks);
}

}  // namespace dlock
