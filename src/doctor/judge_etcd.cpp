#include "doctor/judge_etcd.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/advice.hpp"
#include "doctor/words.hpp"

namespace dlock {
namespace {

constexpr ShortVersion least_etcd{3, 4};
/// The usual quota, of which doctor is not told another.
constexpr long long usual_quota = 2LL << 30;
/// Fewer are no reason to compact.
constexpr long long many_revisions = 100'000;

const EtcdMemberFacts* first_reached(const EtcdFacts& facts) {
  const auto found = std::find_if(facts.members.begin(), facts.members.end(),
                                  [](const auto& each) { return each.unreachable.empty(); });
  return found == facts.members.end() ? nullptr : &*found;
}

Finding judge_etcd_reach(const EtcdFacts& facts, milliseconds ttl) {
  const std::string name = "reach";
  const EtcdMemberFacts* reached = first_reached(facts);
  if (reached == nullptr) {
    const EtcdMemberFacts& first = facts.members.front();
    return bad(
        name, first.unreachable.text,
        first.denied ? "check user, password and TLS" : advice_on_reach(first.unreachable.cause));
  }
  std::string text = "connected in " + span_text(reached->connected_in) + ", answers in " +
                     span_text(reached->round_trip);
  for (const EtcdMemberFacts& each : facts.members) {
    if (each.unreachable.empty()) continue;
    return warn(name, text + "; " + each.unreachable.text,
                "it is asked if the others fail: start it, or name others");
  }
  if (reached->round_trip > ttl / 30) {
    return warn(name, text + ": slow for a ttl of " + human_duration(ttl),
                "a nearer member, or a longer -t");
  }
  return good(name, text);
}

Finding judge_etcd_engine(const EtcdFacts& facts) {
  const std::string name = "engine";
  std::set<std::string> versions;
  for (const EtcdMemberFacts& each : facts.members) {
    if (each.unreachable.empty()) versions.insert(each.version);
  }
  std::string text = "etcd";
  for (const std::string& version : versions) {
    text += (version == *versions.begin() ? " " : ", ") + escaped(version);
  }
  for (const std::string& version : versions) {
    if (is_older(version, least_etcd)) {
      return bad(name, text + ": dlock needs 3.4 or later", "upgrade it");
    }
  }
  const bool loses = std::any_of(versions.begin(), versions.end(), loses_leases);
  if (!loses) return good(name, text);
  const std::string flaw =
      "a leader that was replaced while it stood still may end leases that live, and with them "
      "locks (etcd-io/etcd#15247)";
  if (facts.voters == 1) return good(name, text + "; with more members, " + flaw);
  return warn(name, text + ": " + flaw, "upgrade to 3.4.31, 3.5.13 or later");
}

Finding judge_members(const EtcdFacts& facts) {
  const std::string name = "quorum";
  if (!facts.trouble.empty()) {
    return bad(name, "cannot read locks: " + facts.trouble,
               "more than half of the voting members must run and reach each other");
  }
  const auto without =
      std::find_if(facts.members.begin(), facts.members.end(),
                   [](const auto& each) { return each.unreachable.empty() && !each.has_leader; });
  if (without != facts.members.end()) {
    return warn(name, escaped(without->address) + " knows no leader: it is cut off from the others",
                "see its log, and its network");
  }
  if (facts.voters == 0) return not_told(name, "members");
  if (facts.voters == 1) return good(name, "one member, whose failure nothing survives");
  const std::string text = std::to_string(facts.voters) + " members, of which " +
                           std::to_string((facts.voters - 1) / 2) + " may fail";
  if (facts.voters % 2 != 0) return good(name, text);
  return warn(name, text + ", no more than of one less", "an odd number of members");
}

Finding judge_alarms(const EtcdFacts& facts) {
  const std::string name = "alarm";
  if (!facts.alarms_not_told.empty()) return not_told(name, escaped(facts.alarms_not_told));
  if (facts.alarms.empty()) return good(name, "none");
  if (facts.alarms.front() == "NOSPACE") {
    return bad(name, "NOSPACE: its database is full, and takes no new lock",
               "compact and defragment it, then etcdctl alarm disarm");
  }
  return bad(name, escaped(facts.alarms.front()), "see etcd's manual on this alarm");
}

Finding judge_space(const EtcdFacts& facts) {
  const std::string name = "space";
  long long largest = 0, used = 0;
  for (const EtcdMemberFacts& each : facts.members) {
    largest = std::max(largest, each.database_size);
    used = std::max(used, each.size_in_use);
  }
  const std::string text = size_text(largest) + ", of which " + size_text(used) + " in use";
  if (largest > usual_quota / 2) {
    return warn(name, text + ": more than half of the usual quota of 2G, at which it takes no lock",
                "compact and defragment it, or raise --quota-backend-bytes");
  }
  if (!facts.compacted && facts.revision > many_revisions) {
    return warn(name,
                text + ", and nothing of its " + std::to_string(facts.revision) +
                    " revisions was ever compacted",
                "etcd --auto-compaction-retention=1h");
  }
  return good(name, text);
}

Finding judge_etcd_tls(const EtcdFacts& facts) {
  const std::string name = "tls";
  if (facts.tls) return good(name, "the certificate of the server is verified");
  if (facts.here) return good(name, "none, on this host");
  return warn(name, "none: anyone on the network path can change locks", "etcds:// in --server");
}

Finding judge_etcd_lock(const EtcdFacts& facts) {
  const std::string name = "lock";
  if (!facts.trial.trouble.empty()) {
    return bad(name, "cannot be held: " + facts.trial.trouble.text,
               "see the findings above, and dlock doctor --acl for the rights");
  }
  return good(name, "acquired, handed over in " + span_text(facts.trial.handed_over_in) +
                        ", renewed, released");
}

}  // namespace

bool loses_leases(const std::string& version) {
  std::string_view rest = version;
  const auto major = take_until(rest, '.'), minor = take_until(rest, '.');
  const auto patch = parse_number(rest.substr(0, rest.find_first_not_of("0123456789")), 0, 10'000);
  if (major != "3" || !patch) return false;
  constexpr int mended_in_3_4 = 31, mended_in_3_5 = 13;
  return (minor == "4" && *patch < mended_in_3_4) || (minor == "5" && *patch < mended_in_3_5);
}

std::string etcd_label(const EtcdFacts& facts) {
  if (facts.voters == 0) return "best effort: whether a majority keeps the locks is not known";
  if (facts.voters == 1) return "as safe as its disk";
  const bool loses = std::any_of(facts.members.begin(), facts.members.end(),
                                 [](const auto& each) { return loses_leases(each.version); });
  return loses ? "safe while a majority lives, but for leases that this version may lose"
               : "safe while a majority lives";
}

Findings judge_etcd(const EtcdFacts& facts, milliseconds ttl) {
  Findings findings{judge_etcd_reach(facts, ttl)};
  if (first_reached(facts) == nullptr) return findings;
  findings.push_back(judge_etcd_engine(facts));
  findings.push_back(judge_members(facts));
  if (findings.back().level == Level::error) return findings;
  findings.push_back(judge_alarms(facts));
  findings.push_back(judge_space(facts));
  findings.push_back(judge_etcd_tls(facts));
  findings.push_back(good("user", facts.user.empty() ? "none" : escaped(facts.user)));
  if (facts.tried) findings.push_back(judge_etcd_lock(facts));
  findings.push_back(good("label", etcd_label(facts)));
  return findings;
}

}  // namespace dlock
