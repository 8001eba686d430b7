#include <algorithm>
#include <map>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "redis/cluster_router.hpp"
#include "redis/entry_format.hpp"
#include "redis/redis_connection.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

constexpr const char* best_effort = "best effort";
constexpr const char* another_server = "is it running? --server may name others";

/// The replies of one server, error replies included.
std::vector<Reply> asked(const Endpoint& server, const std::vector<Request>& requests) {
  return RedisConnection(server).exchange(requests, short_call());
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

/// The error reply as a fault with the text `words`; empty if the reply is no error.
Fault fault_of(const Reply& reply, const std::string& words) {
  if (!reply.is_error()) return {};
  return {words, server_error(reply).cause()};
}

Fault fault_of(const Error& error, const Endpoint& server) {
  return {bare_trouble(error.what(), server.name()), error.cause()};
}

/// Asks one sentinel for its master of this name.
SentinelFacts examine_sentinel(const Endpoint& sentinel, const std::string& master_name) {
  SentinelFacts facts;
  facts.endpoint = sentinel;
  try {
    const auto replies = asked(sentinel, {{"SENTINEL", "get-master-addr-by-name", master_name},
                                          {"SENTINEL", "master", master_name},
                                          {"SENTINEL", "ckquorum", master_name}});
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

/// A master's own line in CLUSTER NODES ends with `[SLOT->-NODE]` or `[SLOT-<-NODE]` for each slot
/// that migrates (https://redis.io/docs/latest/commands/cluster-nodes/).
void note_open_slots(const Endpoint& master, ClusterFacts& facts) try {
  const std::string told = asked(master, {{"CLUSTER", "NODES"}}).front().text;
  std::string_view own = std::string_view(told).substr(std::min(told.size(), told.find("myself")));
  own = own.substr(0, own.find('\n'));
  for (take_until(own, '['); !own.empty(); take_until(own, '[')) {
    facts.open_slots.emplace(own.substr(0, own.find('-')));
  }
} catch (const Error&) {
  // examine_server reports why the server does not answer.
}

/// Asks all seeds, and takes the description of the Cluster from the first that has one.
ClusterFacts examine_cluster(const std::vector<Endpoint>& seeds, const std::string& prefix) {
  ClusterFacts facts;
  for (const Endpoint& seed : seeds) {
    try {
      const auto replies = asked(seed, {{"CLUSTER", "SLOTS"}, {"CLUSTER", "INFO"}});
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

std::string named_master(const SentinelFacts& sentinel) {
  return address_of(sentinel.host, sentinel.port);
}

Findings check_sentinel(const SentinelFacts& sentinel) {
  const std::string where = sentinel.endpoint.address() + ": ";
  const Cause cause = sentinel.unreachable.cause;
  const bool of_the_user =
      is_refused_login(cause) || cause == Cause::password_unneeded || cause == Cause::acl;
  const auto quorum = sentinel.master.text("quorum");
  return first_rows({
      {"sentinel", sentinel.unreachable.text == "unknown command",
       warn(where + "it is not a sentinel", "name sentinels: they listen on port 26379 as a rule")},
      {"sentinel", !sentinel.unreachable.empty(),
       warn(where + sentinel.unreachable.text,
            of_the_user ? "check --sentinel-user, --sentinel-password-file; dlock doctor --acl"
                        : advice_on(cause, another_server))},
      {"sentinel", !announced(sentinel.host, sentinel.port),
       bad(where + "it knows no master of this name",
           "SENTINEL MASTERS there lists what it knows")},
      {"sentinel", !sentinel.quorum_fault.empty(),
       bad(where + sentinel.quorum_fault, "bring the other sentinels back")},
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
  // A holder renews every third of its ttl, so at least two thirds are left when the master falls
  // silent.
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
  append(findings,
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
              bad(sentence("slot {} is on its way to another master: new keys there cannot be "
                           "locked until it has arrived",
                           escaped(joined(facts.open_slots, ", "))),
                  "if the move was cut off: redis-cli --cluster fix")},
             {"cluster", is_one,
              good(sentence("state ok, {}{}, all slots served", masters,
                            known ? " of " + counted(*known, "node") : ""))},
         }));
  return findings;
}

Findings check_quorum(const std::vector<ServerFacts>& servers) {
  constexpr std::chrono::seconds tolerable{60};
  std::vector<milliseconds> waits;                  // for the vote of each server that was reached
  std::vector<std::chrono::nanoseconds> ahead{{}};  // first this host's clock
  std::map<std::string, std::string> processes;
  std::string twice;
  for (const ServerFacts& each : servers) {
    if (each.unreachable.empty()) waits.push_back(each.quarantined_for.value_or(milliseconds(0)));
    if (each.clock) ahead.push_back(each.clock->ahead);
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
  std::vector<SentinelFacts> sentinels;
  for (const Endpoint& each : target.sentinels) {
    sentinels.push_back(examine_sentinel(each, target.master_name));
  }
  Diagnosis diagnosis{deployment_name("sentinel", target.sentinels, target.master.tls.has_value()) +
                          "/" + escaped(target.master_name),
                      best_effort, check_sentinels(sentinels, options)};
  for (const SentinelFacts& each : sentinels) {
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
  Diagnosis diagnosis{
      deployment_name("cluster", target.seeds, target.seeds.front().tls.has_value()), best_effort,
      check_cluster(cluster)};
  std::vector<std::pair<std::string, Findings>> masters;
  for (const auto& [master, scratch] : cluster.masters) {
    masters.emplace_back(master.address(), check_server(examine_server(master, options, scratch)));
  }
  append(diagnosis.findings, merged(masters));
  return diagnosis;
}

Diagnosis diagnose(const QuorumTarget& target, DoctorOptions options, const OpenStore&) {
  options.topology = Topology::quorum;
  std::vector<ServerFacts> servers;
  std::vector<std::pair<std::string, Findings>> findings;
  for (const Endpoint& each : target.servers) {
    servers.push_back(examine_server(each, options, scratch_key()));
    findings.emplace_back(each.address(), check_server(servers.back()));
  }
  Diagnosis diagnosis{joined(target.servers, " ", [](const Endpoint& each) { return each.name(); }),
                      "a majority decides", check_quorum(servers)};
  append(diagnosis.findings, merged(findings));
  return diagnosis;
}

}  // namespace dlock
