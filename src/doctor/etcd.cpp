#include <algorithm>

#include "base/text.hpp"
#include "doctor/checks.hpp"

namespace dlock {
namespace {

constexpr ShortVersion least_etcd{3, 4};
/// The default quota. etcd does not report a changed one.
constexpr long long usual_quota = 2LL << 30;

bool any_loses_leases(const EtcdFacts& facts) {
  return std::any_of(facts.members.begin(), facts.members.end(),
                     [](const auto& each) { return loses_leases(each.version); });
}

}  // namespace

bool loses_leases(const std::string& version) {
  if (!version.starts_with("3.")) return false;
  const std::string rest = version.substr(2);
  const auto is_from = [&](ShortVersion first, ShortVersion fixed) {
    return is_older(rest, fixed) && !is_older(rest, first);
  };
  return is_from({4, 0}, {4, 31}) || is_from({5, 0}, {5, 13});
}

std::string label_of(const EtcdFacts& facts) {
  if (facts.voters == 0) return "best effort: whether a majority keeps the locks is not known";
  if (facts.voters == 1) return "as safe as its disk";
  return any_loses_leases(facts)
             ? "safe while a majority lives, but for leases that this version may lose"
             : "safe while a majority lives";
}

Findings check_etcd(const EtcdFacts& facts) {
  const auto* reached = first_reached(facts.members);
  const EtcdMemberStatus member = reached == nullptr ? EtcdMemberStatus{} : *reached;
  std::int64_t largest = 0, used = 0;
  for (const EtcdMemberStatus& each : facts.members) {
    largest = std::max(largest, each.database_size);
    used = std::max(used, each.size_in_use);
  }
  const Finding reach =
      check_reach_of_any(sentence("connected in {}, answers in {}", span_text(member.connected_in),
                                  span_text(member.round_trip)),
                         facts.members);
  const Finding engine = check_versions("etcd", versions_of(facts.members), least_etcd);
  const bool loses = engine.level == Level::ok && facts.voters != 1 && any_loses_leases(facts);
  const std::string may_fail =
      sentence("{} members, of which {} may fail", facts.voters, (facts.voters - 1) / 2);
  const std::string alarm = facts.alarms.empty() ? "" : facts.alarms.front();
  const std::string space = sentence("{} MB, of which {} in use", largest >> 20, used >> 20);
  return first_rows({
      {"reach", reached == nullptr, reach, ends},
      {"reach", true, warn_if_slow(reach, member.round_trip, facts.options.ttl)},
      {"engine", loses,
       warn(engine.text + ": a leader that was replaced while it stood still may end leases that "
                          "live, and with them locks (etcd-io/etcd#15247)",
            "upgrade to 3.4.31, 3.5.13 or later")},
      {"engine", true, engine},
      {"quorum", !facts.trouble.empty(),
       bad("cannot read locks: " + facts.trouble,
           "more than half of the voting members must run and reach each other"),
       ends},
      {"quorum", facts.voters == 0, not_told("members")},
      {"quorum", facts.voters == 1, good("one member, whose failure nothing survives")},
      {"quorum", facts.voters % 2 == 0,
       warn(may_fail + ", no more than of one less", "an odd number of members")},
      {"quorum", true, good(may_fail)},
      {"alarm", !facts.alarms_not_told.empty(), not_told(escaped(facts.alarms_not_told))},
      {"alarm", alarm.empty(), good("none")},
      {"alarm", true,
       bad(escaped(alarm) + ": it may take no new lock",
           "NOSPACE: compact and defragment it, then etcdctl alarm disarm; else see its manual")},
      {"space", largest > usual_quota / 2,
       warn(space + ": more than half of the usual quota of 2G, at which it takes no lock",
            "compact and defragment it, or raise --quota-backend-bytes")},
      {"space", true, good(space)},
      {"tls", facts.tls, good("the certificate of the server is verified")},
      {"tls", true, check_plain_text(facts.here, "etcds:// in --server")},
      {"user", true, good(facts.user.empty() ? "none" : escaped(facts.user))},
      {"lock", facts.trial.has_value(), check_lock(facts.trial)},
      {"label", true, good(label_of(facts))},
  });
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

std::string rights_text(const EtcdTarget& target, const DoctorOptions& options) {
  const std::string user = user_of(target.servers.front(), "USER");
  return sentence(
      "etcdctl role add dlock\n"
      "etcdctl role grant-permission dlock --prefix=true readwrite {}\n"
      "etcdctl user add {}\n"
      "etcdctl user grant-role {} dlock\n",
      escaped(options.prefix), user, user);
}

}  // namespace dlock
