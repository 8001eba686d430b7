#include <algorithm>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"

namespace dlock {
namespace {

constexpr ShortVersion least_etcd{3, 4};
/// The default quota. etcd does not report a changed one.
constexpr long long usual_quota = 2LL << 30;
/// Below this number compaction saves little.
constexpr long long many_revisions = 100'000;

Findings check_members(const EtcdFacts& facts) {
  const auto* reached = first_reached(facts.members);
  std::string cut_off;
  for (const EtcdMemberStatus& each : facts.members) {
    if (each.unreachable.empty() && !each.has_leader) cut_off = escaped(each.address);
  }
  const EtcdMemberStatus member = reached == nullptr ? EtcdMemberStatus{} : *reached;
  const Finding reach =
      check_reach_of_any(sentence("connected in {}, answers in {}", span_text(member.connected_in),
                                  span_text(member.round_trip)),
                         facts.members);
  const std::set<std::string> versions = versions_of(facts.members);
  const Finding engine = check_versions("etcd", versions, least_etcd);
  const bool loses =
      engine.level == Level::ok && std::any_of(versions.begin(), versions.end(), loses_leases);
  const std::string flaw =
      "a leader that was replaced while it stood still may end leases that live, and with them "
      "locks (etcd-io/etcd#15247)";
  const std::string may_fail =
      sentence("{} members, of which {} may fail", facts.voters, (facts.voters - 1) / 2);
  return first_rows({
      {"reach", reached == nullptr && facts.members.front().denied,
       bad(reach.text, "check user, password and TLS"), ends},
      {"reach", reached == nullptr, reach, ends},
      {"reach", true, warn_if_slow(reach, member.round_trip, facts.options.ttl)},
      {"engine", loses && facts.voters == 1, good(engine.text + "; with more members, " + flaw)},
      {"engine", loses, warn(engine.text + ": " + flaw, "upgrade to 3.4.31, 3.5.13 or later")},
      {"engine", true, engine},
      {"quorum", !facts.trouble.empty(),
       bad("cannot read locks: " + facts.trouble,
           "more than half of the voting members must run and reach each other"),
       ends},
      {"quorum", !cut_off.empty(),
       warn(cut_off + " knows no leader: it is cut off from the others",
            "see its log, and its network")},
      {"quorum", facts.voters == 0, not_told("members")},
      {"quorum", facts.voters == 1, good("one member, whose failure nothing survives")},
      {"quorum", facts.voters % 2 == 0,
       warn(may_fail + ", no more than of one less", "an odd number of members")},
      {"quorum", true, good(may_fail)},
  });
}

Findings check_upkeep(const EtcdFacts& facts) {
  const std::string alarm = facts.alarms.empty() ? "" : facts.alarms.front();
  std::int64_t largest = 0, used = 0;
  for (const EtcdMemberStatus& each : facts.members) {
    largest = std::max(largest, each.database_size);
    used = std::max(used, each.size_in_use);
  }
  const std::string space = sentence("{}, of which {} in use", size_text(largest), size_text(used));
  return first_rows({
      {"alarm", !facts.alarms_not_told.empty(), not_told(escaped(facts.alarms_not_told))},
      {"alarm", alarm.empty(), good("none")},
      {"alarm", alarm == "NOSPACE",
       bad("NOSPACE: its database is full, and takes no new lock",
           "compact and defragment it, then etcdctl alarm disarm")},
      {"alarm", true, bad(escaped(alarm), "see etcd's manual on this alarm")},
      {"space", largest > usual_quota / 2,
       warn(space + ": more than half of the usual quota of 2G, at which it takes no lock",
            "compact and defragment it, or raise --quota-backend-bytes")},
      {"space", !facts.compacted && facts.revision > many_revisions,
       warn(sentence("{}, and nothing of its {} revisions was ever compacted", space,
                     facts.revision),
            "etcd --auto-compaction-retention=1h")},
      {"space", true, good(space)},
      {"tls", facts.tls, good("the certificate of the server is verified")},
      {"tls", true, check_plain_text(facts.here, "etcds:// in --server")},
      {"user", true, good(facts.user.empty() ? "none" : escaped(facts.user))},
      {"lock", facts.trial.has_value(), check_lock(facts.trial)},
      {"label", true, good(label_of(facts))},
  });
}

}  // namespace

bool loses_leases(const std::string& version) {
  std::string_view rest = version;
  const auto major = take_until(rest, '.'), minor = take_until(rest, '.');
  const auto patch = parse_number(rest.substr(0, rest.find_first_not_of("0123456789")), 0, 10'000);
  if (major != "3" || !patch) return false;
  constexpr int fixed_in_3_4 = 31, fixed_in_3_5 = 13;
  return (minor == "4" && *patch < fixed_in_3_4) || (minor == "5" && *patch < fixed_in_3_5);
}

std::string label_of(const EtcdFacts& facts) {
  if (facts.voters == 0) return "best effort: whether a majority keeps the locks is not known";
  if (facts.voters == 1) return "as safe as its disk";
  const bool loses = std::any_of(facts.members.begin(), facts.members.end(),
                                 [](const auto& each) { return loses_leases(each.version); });
  return loses ? "safe while a majority lives, but for leases that this version may lose"
               : "safe while a majority lives";
}

Findings check_etcd(const EtcdFacts& facts) {
  Findings all = check_members(facts);
  if (all.back().level != Level::error) append(all, check_upkeep(facts));
  return all;
}

Diagnosis diagnose(const EtcdTarget& target, const DoctorOptions& options, const OpenStore& open) {
  EtcdFacts facts;
#ifdef DLOCK_WITH_ETCD
  for (const Endpoint& each : target.servers) {
    facts.members.push_back(ask_member(each, short_call()));
  }
  if (first_reached(facts.members) != nullptr) {
    static_cast<EtcdStatus&>(facts) = ask_etcd(target.servers, options.prefix, short_call());
    if (facts.trouble.empty()) facts.trial = try_lock(open, scratch_key(), target.name());
  }
#endif
  facts.options = options;
  facts.tls = target.servers.front().tls.has_value();
  facts.user = target.servers.front().user.value_or("");
  facts.here = are_on_this_host(target.servers);
  return {target.name(), label_of(facts), check_etcd(facts)};
}

}  // namespace dlock
