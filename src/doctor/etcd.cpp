#include "doctor/etcd.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "doctor/examine_redis.hpp"
#include "doctor/finding.hpp"

#ifdef DLOCK_WITH_ETCD
#include "etcd/etcd_status.hpp"
#endif

namespace dlock {
namespace {

constexpr ShortVersion least_etcd{3, 4};
/// The default quota. etcd does not report a changed one.
constexpr long long usual_quota = 2LL << 30;
/// Below this number compaction saves little.
constexpr long long many_revisions = 100'000;

const EtcdMemberStatus* first_reached(const EtcdFacts& facts) {
  const auto found = std::find_if(facts.members.begin(), facts.members.end(),
                                  [](const auto& each) { return each.unreachable.empty(); });
  return found == facts.members.end() ? nullptr : &*found;
}

Finding judge_etcd_reach(const EtcdFacts& facts) {
  std::vector<const Fault*> unreachable;
  for (const EtcdMemberStatus& each : facts.members) {
    if (!each.unreachable.empty()) unreachable.push_back(&each.unreachable);
  }
  const EtcdMemberStatus* reached = first_reached(facts);
  if (reached == nullptr && facts.members.front().denied) {
    return bad(unreachable.front()->text, "check user, password and TLS");
  }
  std::optional<std::string> text;
  if (reached != nullptr) {
    text = "connected in " + span_text(reached->connected_in) + ", answers in " +
           span_text(reached->round_trip);
  }
  const Finding reach = check_reach_of_any(text, unreachable);
  return reached == nullptr ? reach : warn_if_slow(reach, reached->round_trip, facts.ttl);
}

Finding judge_etcd_engine(const EtcdFacts& facts) {
  std::set<std::string> versions;
  for (const EtcdMemberStatus& each : facts.members) {
    if (each.unreachable.empty()) versions.insert(each.version);
  }
  Finding engine = check_versions("etcd", versions, least_etcd);
  const bool loses = std::any_of(versions.begin(), versions.end(), loses_leases);
  if (engine.level != Level::ok || !loses) return engine;
  const std::string flaw =
      "a leader that was replaced while it stood still may end leases that live, and with them "
      "locks (etcd-io/etcd#15247)";
  if (facts.voters == 1) return good(engine.text + "; with more members, " + flaw);
  return warn(engine.text + ": " + flaw, "upgrade to 3.4.31, 3.5.13 or later");
}

Finding judge_members(const EtcdFacts& facts) {
  if (!facts.trouble.empty()) {
    return bad("cannot read locks: " + facts.trouble,
               "more than half of the voting members must run and reach each other");
  }
  const auto without =
      std::find_if(facts.members.begin(), facts.members.end(),
                   [](const auto& each) { return each.unreachable.empty() && !each.has_leader; });
  if (without != facts.members.end()) {
    return warn(escaped(without->address) + " knows no leader: it is cut off from the others",
                "see its log, and its network");
  }
  if (facts.voters == 0) return not_told("members");
  if (facts.voters == 1) return good("one member, whose failure nothing survives");
  const std::string text = std::to_string(facts.voters) + " members, of which " +
                           std::to_string((facts.voters - 1) / 2) + " may fail";
  if (facts.voters % 2 != 0) return good(text);
  return warn(text + ", no more than of one less", "an odd number of members");
}

Finding judge_alarms(const EtcdFacts& facts) {
  if (!facts.alarms_not_told.empty()) return not_told(escaped(facts.alarms_not_told));
  if (facts.alarms.empty()) return good("none");
  if (facts.alarms.front() == "NOSPACE") {
    return bad("NOSPACE: its database is full, and takes no new lock",
               "compact and defragment it, then etcdctl alarm disarm");
  }
  return bad(escaped(facts.alarms.front()), "see etcd's manual on this alarm");
}

Finding judge_space(const EtcdFacts& facts) {
  std::int64_t largest = 0, used = 0;
  for (const EtcdMemberStatus& each : facts.members) {
    largest = std::max(largest, each.database_size);
    used = std::max(used, each.size_in_use);
  }
  const std::string text = size_text(largest) + ", of which " + size_text(used) + " in use";
  if (largest > usual_quota / 2) {
    return warn(text + ": more than half of the usual quota of 2G, at which it takes no lock",
                "compact and defragment it, or raise --quota-backend-bytes");
  }
  if (!facts.compacted && facts.revision > many_revisions) {
    return warn(text + ", and nothing of its " + std::to_string(facts.revision) +
                    " revisions was ever compacted",
                "etcd --auto-compaction-retention=1h");
  }
  return good(text);
}

Finding judge_etcd_tls(const EtcdFacts& facts) {
  if (facts.tls) return good("the certificate of the server is verified");
  return check_plain_text(facts.here, "etcds:// in --server");
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

std::string etcd_label(const EtcdFacts& facts) {
  if (facts.voters == 0) return "best effort: whether a majority keeps the locks is not known";
  if (facts.voters == 1) return "as safe as its disk";
  const bool loses = std::any_of(facts.members.begin(), facts.members.end(),
                                 [](const auto& each) { return loses_leases(each.version); });
  return loses ? "safe while a majority lives, but for leases that this version may lose"
               : "safe while a majority lives";
}

namespace {

constexpr Check<EtcdFacts> etcd_checks[] = {
    {"reach", judge_etcd_reach},
    {"engine", judge_etcd_engine},
    {"quorum", judge_members, nullptr, true},
    {"alarm", judge_alarms},
    {"space", judge_space},
    {"tls", judge_etcd_tls},
    {"user",
     [](const EtcdFacts& facts) {
       return good(facts.user.empty() ? "none" : escaped(facts.user));
     }},
    lock_row<EtcdFacts>,
    {"label", [](const EtcdFacts& facts) { return good(etcd_label(facts)); }}};

}  // namespace

Findings judge_etcd(const EtcdFacts& facts) {
  if (first_reached(facts) == nullptr) return {named("reach", judge_etcd_reach(facts))};
  return run_checks(facts, etcd_checks);
}

namespace {

#ifdef DLOCK_WITH_ETCD
EtcdFacts examine_etcd(const std::vector<Endpoint>& servers, const std::string& prefix) {
  EtcdFacts facts;
  for (const Endpoint& server : servers) facts.members.push_back(ask_member(server, short_call()));
  if (first_reached(facts) != nullptr) {
    static_cast<EtcdStatus&>(facts) = ask_etcd(servers, prefix, short_call());
  }
  facts.tls = servers.front().tls.has_value();
  facts.user = servers.front().user.value_or("");
  facts.here = are_on_this_host(servers);
  return facts;
}
#else
EtcdFacts examine_etcd(const std::vector<Endpoint>&, const std::string&) {
  throw_usage("this dlock was built without etcd");
}
#endif

}  // namespace

Diagnosis diagnose_etcd(const std::vector<Endpoint>& servers, const std::string& shown,
                        const DoctorOptions& exam, const std::function<StorePtr()>& open) {
  EtcdFacts facts = examine_etcd(servers, exam.prefix);
  facts.ttl = exam.ttl;
  if (first_reached(facts) != nullptr && facts.trouble.empty()) {
    facts.tried = true;
    facts.trial = try_lock(open, scratch_key(), shown);
  }
  return {shown, etcd_label(facts), judge_etcd(facts)};
}

std::string etcd_rights(const std::vector<Endpoint>& servers, const std::string& prefix) {
  const std::string user = servers.front().user ? escaped(*servers.front().user) : "USER";
  return "etcdctl role add dlock\n"
         "etcdctl role grant-permission dlock --prefix=true readwrite " +
         escaped(prefix) +
         "\n"
         "etcdctl user add " +
         user +
         "\n"
         "etcdctl user grant-role " +
         user + " dlock\n";
}

}  // namespace dlock
