#include <algorithm>
#include <future>
#include <map>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {
namespace {

constexpr const char* best_effort = "best effort";
constexpr const char* another_server = "is it running? --server may name others";

/// The answers of all `servers`, asked at once, or one after another if threads cannot be started.
template <typename Server, typename Ask>
auto asked_at_once(const std::vector<Server>& servers, const Ask& ask) {
  constexpr auto if_possible = std::launch::async | std::launch::deferred;
  std::vector<std::future<decltype(ask(servers.front()))>> asked;
  for (const Server& each : servers) {
    asked.push_back(std::async(if_possible, [&ask, &each] { return ask(each); }));
  }
  std::vector<decltype(ask(servers.front()))> answers;
  for (auto& each : asked) answers.push_back(each.get());
  return answers;
}

std::string named_master(const SentinelFacts& sentinel) {
  return address_of(sentinel.host, sentinel.port);
}

Findings check_sentinel(const SentinelFacts& sentinel) {
  const std::string where = sentinel.endpoint.address() + ": ";
  const Cause cause = sentinel.unreachable.cause;
  const bool of_the_user =
      is_refused_login(cause) || cause == Cause::password_unneeded || cause == Cause::acl;
  const std::string flags = sentinel.master.shown("flags");
  const auto quorum = sentinel.master.text("quorum");
  const std::string see_masters = "SENTINEL MASTERS there lists what it knows";
  return first_rows({
      {"sentinel", sentinel.unreachable.text == "unknown command",
       warn(where + "it is not a sentinel", "name sentinels: they listen on port 26379 as a rule")},
      {"sentinel", !sentinel.unreachable.empty(),
       warn(where + sentinel.unreachable.text,
            of_the_user ? "check --sentinel-user, --sentinel-password-file; dlock doctor --acl"
                        : advice_on(cause, another_server))},
      {"sentinel", sentinel.host.empty(),
       bad(where + "it knows no master of this name", see_masters)},
      {"sentinel", !announced(sentinel.host, sentinel.port),
       bad(where + "names a master that cannot be: " + named_master(sentinel), see_masters)},
      {"sentinel", !sentinel.quorum_fault.empty(),
       bad(where + sentinel.quorum_fault, "bring the other sentinels back")},
      {"sentinel", flags.find("down") != std::string::npos,
       bad(sentence("{}takes {} for down ({})", where, named_master(sentinel), flags),
           "look at that server, and at the network between")},
      {"sentinel", true,
       good(sentence("{}names {}{}", where, named_master(sentinel),
                     quorum ? ", quorum " + escaped(*quorum) : ""))},
  });
}

}  // namespace

Findings check_sentinels(const std::vector<SentinelFacts>& sentinels,
                         const DoctorOptions& options) {
  Findings findings;
  std::set<std::string> masters;
  const SentinelFacts* first = nullptr;
  for (const SentinelFacts& each : sentinels) {
    append(findings, check_sentinel(each));
    if (!each.unreachable.empty() || each.host.empty()) continue;
    masters.insert(named_master(each));
    if (first == nullptr) first = &each;
  }
  if (first == nullptr) {
    for (Finding& each : findings) each.level = Level::error;
    return findings;
  }
  const std::string& why = first->master.refusal;
  const auto others = first->master.number("num-other-sentinels");
  const std::string known = counted(others.value_or(0) + 1, "sentinel") + " in all";
  const auto silence = first->master.number("down-after-milliseconds");
  append(findings,
         first_rows({
             {"quorum", masters.size() > 1,
              bad("the sentinels name different masters: " + joined(masters, ", "),
                  "wait for the failover to end; else SENTINEL RESET the odd one")},
             {"quorum", !others, not_told("SENTINEL MASTER: " + why)},
             {"quorum", others < 2,
              warn(known + ": with one lost, none can fail over", "run three or more")},
             {"quorum", true, good(known + ", and they agree")},
             {"failover", !silence, not_told("SENTINEL MASTER" + (why.empty() ? "" : ": " + why))},
             {"failover", true,
              check_failover(milliseconds(silence.value_or(0)), "down-after-milliseconds",
                             options.ttl)},
         }));
  return findings;
}

Finding check_failover(milliseconds silence, const std::string& setting, milliseconds ttl) {
  const std::string text = "begins after " + human_duration(silence) + " of silence";
  // A holder renews every third of its ttl, so at least two thirds are left when the failover
  // begins.
  if (silence < ttl / 3 * 2) return good(text);
  return warn(
      sentence("{}: too late for a ttl of {}, so it stops every job", text, human_duration(ttl)),
      setting + " 5000, or a longer -t");
}

Findings check_cluster(const ClusterFacts& facts) {
  Findings findings;
  const bool is_one = !facts.masters.empty();
  for (const auto& [address, why] : facts.silent_seeds) {
    findings.push_back({is_one ? Level::warning : Level::error, "cluster",
                        address + ": " + why.text, advice_on(why.cause, another_server)});
  }
  const std::string state =
      facts.info.text("cluster_state") ? facts.info.shown("cluster_state") : "ok";
  const std::string masters = counted(static_cast<long long>(facts.masters.size()), "master");
  const auto known = facts.info.number("cluster_known_nodes");
  append(
      findings,
      first_rows({
          {"cluster", !facts.fault.empty() && !is_one,
           bad("it names no nodes: " + facts.fault.text,
               advice_on(facts.fault.cause, "for a server on its own: --server redis://HOST"))},
          {"cluster", !is_one && findings.empty(),
           bad("no node has a slot", "redis-cli --cluster create")},
          {"cluster", is_one && (facts.unserved > 0 || state != "ok"),
           bad(sentence("state {}, {}, {} with nobody: keys cannot be locked", state, masters,
                        counted(facts.unserved, "slot")),
               "redis-cli --cluster fix, or bring the nodes back")},
          {"cluster", is_one && !facts.open_slots.empty(),
           bad(sentence(
                   "slot {} is on its way to another master: new keys there cannot be locked "
                   "until it has arrived",
                   joined(facts.open_slots, ", ", [](int slot) { return std::to_string(slot); })),
               "if the move was cut off: redis-cli --cluster fix")},
          {"cluster", is_one && facts.masters.size() < 3,
           warn(masters + ": with one lost there is no majority to fail over",
                "run three masters or more")},
          {"cluster", is_one,
           good(sentence("state ok, {}{}, all slots served", masters,
                         known ? " of " + counted(*known, "node") : ""))},
      }));
  return findings;
}

Findings check_quorum(const std::vector<ServerFacts>& servers) {
  constexpr std::chrono::seconds tolerable{60};
  std::vector<milliseconds> waits;                   // for the vote of each server that was reached
  std::vector<microseconds> ahead{microseconds(0)};  // first this host's clock
  std::map<std::string, std::string> processes;
  std::string twice;
  for (const ServerFacts& each : servers) {
    if (each.unreachable.empty()) waits.push_back(each.quarantined_for.value_or(milliseconds(0)));
    if (!each.clock.empty()) {
      const ClockSample& nearest = nearest_reading(each.clock);
      ahead.push_back(nearest.server - nearest.here);
    }
    const auto process = each.info.text("run_id");
    if (!process) continue;
    const auto [other, is_new] = processes.emplace(*process, each.endpoint.address());
    if (!is_new) twice = other->second + " and " + each.endpoint.address();
  }
  const std::size_t all = servers.size(), needed = all / 2 + 1, reached = waits.size();
  std::sort(waits.begin(), waits.end());
  const milliseconds wait = reached < needed ? milliseconds(0) : waits[needed - 1];
  const auto [least, most] = std::minmax_element(ahead.begin(), ahead.end());
  const std::string of = sentence("{} of {} reached, {} needed: ", reached,
                                  counted(static_cast<long long>(all), "server"), needed);
  const std::string apart =
      sentence("at most {} apart, this host's among them", span_text(*most - *least));
  return first_rows({
      {"majority", reached < needed, bad(of + "no lock can be taken", "bring the others back")},
      {"majority", wait > milliseconds(0),
       bad(of + "no lock can be taken for another " + human_duration(wait),
           "wait until enough of them have a vote again")},
      {"majority", reached < all,
       warn(sentence("{}{} more may fail", of, reached - needed), "bring the others back")},
      {"majority", all % 2 == 0,
       warn(sentence("{}no more of them may fail than of {}", of, all - 1), "name an odd number")},
      {"majority", true, good(sentence("{}any {} may fail", of, all - needed))},
      {"independence", !twice.empty(),
       bad(twice + " are the same server", "name each server once")},
      {"independence", processes.empty(), not_told(refusals(servers.front()))},
      {"independence", true, good("no server is named twice")},
      {"clocks", ahead.size() == 1, not_told("TIME")},
      {"clocks", *most - *least < tolerable, good(apart)},
      {"clocks", true,
       bad(apart + ": if a server loses its memory, fences may fall", "NTP on all of them")},
      {"label", true,
       good("at most one unexpired holder while clocks run at the same rate within 1 %, also when "
            "a minority fails or forgets")},
  });
}

Findings merged(const std::vector<std::pair<std::string, Findings>>& servers) {
  struct Shared {
    Finding finding;
    std::vector<std::string> servers;
  };
  std::vector<Shared> all;
  for (const auto& [server, findings] : servers) {
    for (const Finding& each : findings) {
      auto after = all.end();
      auto at = all.begin();
      for (; at != all.end(); ++at) {
        if (at->finding.check != each.check) continue;
        if (at->finding.text == each.text && at->finding.advice == each.advice) break;
        after = at + 1;
      }
      if (at == all.end()) at = all.insert(after, {each, {}});
      at->servers.push_back(server);
    }
  }
  Findings findings;
  for (const Shared& each : all) {
    const bool everybody = each.servers.size() == servers.size() && servers.size() > 1;
    findings.push_back(each.finding);
    findings.back().text =
        (everybody ? "all " + std::to_string(servers.size()) : joined(each.servers, ", ")) + ": " +
        each.finding.text;
  }
  return findings;
}

Diagnosis diagnose(const Endpoint& server, DoctorOptions options, const OpenStore&) {
  options.topology = Topology::single;
  return {server.name(), best_effort, check_server(examine_server(server, options, scratch_key()))};
}

Diagnosis diagnose(const SentinelTarget& target, DoctorOptions options, const OpenStore&) {
  options.topology = Topology::sentinel;
  const auto heard = asked_at_once(target.sentinels, [&](const Endpoint& each) {
    return examine_sentinel(each, target.master_name);
  });
  Diagnosis diagnosis{
      deployment_name("sentinel", target.sentinels) + "/" + escaped(target.master_name),
      best_effort, check_sentinels(heard, options)};
  for (const SentinelFacts& each : heard) {
    const auto named = announced(each.host, each.port);
    if (!named) continue;
    append(diagnosis.findings, check_server(examine_server(endpoint_at(target.master, *named),
                                                           options, scratch_key())));
    break;
  }
  return diagnosis;
}

Diagnosis diagnose(const ClusterTarget& target, DoctorOptions options, const OpenStore&) {
  options.topology = Topology::cluster;
  const ClusterFacts cluster = examine_cluster(target.seeds, options.prefix);
  Diagnosis diagnosis{deployment_name("cluster", target.seeds), best_effort,
                      check_cluster(cluster)};
  append(diagnosis.findings, merged(asked_at_once(cluster.masters, [&](const auto& master) {
           return std::pair(master.first.address(),
                            check_server(examine_server(master.first, options, master.second)));
         })));
  return diagnosis;
}

Diagnosis diagnose(const QuorumTarget& target, DoctorOptions options, const OpenStore&) {
  options.topology = Topology::quorum;
  const auto heard = asked_at_once(target.servers, [&](const Endpoint& each) {
    return examine_server(each, options, scratch_key());
  });
  std::vector<std::pair<std::string, Findings>> nodes;
  for (const ServerFacts& each : heard) {
    nodes.emplace_back(each.endpoint.address(), check_server(each));
  }
  Diagnosis diagnosis{joined(target.servers, " ", [](const Endpoint& each) { return each.name(); }),
                      "a majority decides", check_quorum(heard)};
  append(diagnosis.findings, merged(nodes));
  return diagnosis;
}

}  // namespace dlock
