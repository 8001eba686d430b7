#include <linux/magic.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/advice.hpp"
#include "doctor/judge.hpp"
#include "doctor/words.hpp"
#include "redis/node_address.hpp"

namespace dlock {
namespace {

constexpr const char* another_server = "is it running? --server may name others";

std::string named_master(const SentinelFacts& sentinel) {
  return address_of(sentinel.host, sentinel.port);
}

Finding judge_sentinel(const SentinelFacts& sentinel) {
  const std::string name = "sentinel";
  const std::string where = sentinel.endpoint.address() + ": ";
  if (sentinel.unreachable.text == "unknown command") {
    return warn(name, where + "it is not a sentinel",
                "name sentinels: they listen on port 26379 as a rule");
  }
  if (!sentinel.unreachable.empty()) {
    const Cause cause = sentinel.unreachable.cause;
    const bool of_the_user = cause == Cause::password_missing || cause == Cause::password_wrong ||
                             cause == Cause::password_unneeded || cause == Cause::acl;
    return warn(name, where + sentinel.unreachable.text,
                of_the_user ? "check --sentinel-user, --sentinel-password-file; dlock doctor --acl"
                            : advice_on(cause, another_server));
  }
  if (sentinel.host.empty()) {
    return bad(name, where + "it knows no master of this name",
               "SENTINEL MASTERS there lists what it knows");
  }
  if (!announced(sentinel.host, sentinel.port)) {
    return bad(name, where + "names a master that cannot be: " + named_master(sentinel),
               "SENTINEL MASTERS there lists what it knows");
  }
  if (!sentinel.quorum_fault.empty()) {
    return bad(name, where + sentinel.quorum_fault, "bring the other sentinels back");
  }
  const auto flags = sentinel.master.text("flags").value_or("");
  if (flags.find("down") != std::string::npos) {
    return bad(name,
               where + "takes " + named_master(sentinel) + " for down (" + escaped(flags) + ")",
               "look at that server, and at the network between");
  }
  const auto quorum = sentinel.master.text("quorum");
  return good(name, where + "names " + named_master(sentinel) +
                        (quorum ? ", quorum " + escaped(*quorum) : ""));
}

Finding judge_sentinel_failover(const SentinelFacts& sentinel, const DoctorOptions& exam) {
  const auto told = sentinel.master.number("down-after-milliseconds");
  if (told) return judge_failover(milliseconds(*told), "down-after-milliseconds", exam);
  const auto& why = sentinel.master.refusal;
  return not_told("failover", "SENTINEL MASTER" + (why.empty() ? "" : ": " + why));
}

Finding judge_majority(const std::vector<const SentinelFacts*>& heard) {
  const std::string name = "quorum";
  std::set<std::string> masters;
  for (const SentinelFacts* each : heard) masters.insert(named_master(*each));
  if (masters.size() > 1) {
    const std::string list = joined(masters, ", ");
    return bad(name, "the sentinels name different masters: " + list,
               "wait for the failover to end; else SENTINEL RESET the odd one");
  }
  const auto others = heard.front()->master.number("num-other-sentinels");
  if (!others) return not_told(name, "SENTINEL MASTER: " + heard.front()->master.refusal);
  const long long known = *others + 1;
  if (known < 3) {
    return warn(name, counted(known, "sentinel") + " in all: with one lost, none can fail over",
                "run three or more");
  }
  return good(name, counted(known, "sentinel") + " in all, and they agree");
}

/// What was found in this check, each with the servers that it is true of.
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

struct FileSystem {
  long type;
  const char* name;
};
/// Those that several hosts may share: which processes live can be told on one alone. What
/// linux/magic.h lacks is from statfs(2).
constexpr std::array shared_file_systems{
    FileSystem{NFS_SUPER_MAGIC, "nfs"},   FileSystem{SMB_SUPER_MAGIC, "smb"},
    FileSystem{0xFF534D42, "cifs"},       FileSystem{0xFE534D42, "smb2"},
    FileSystem{CEPH_SUPER_MAGIC, "ceph"}, FileSystem{AFS_SUPER_MAGIC, "afs"},
    FileSystem{V9FS_MAGIC, "9p"},         FileSystem{0x65735546, "fuse"},
    FileSystem{0x0BD00BD0, "lustre"},     FileSystem{0x01161970, "gfs2"},
    FileSystem{0x7461636F, "ocfs2"},      FileSystem{0x47504653, "gpfs"}};

}  // namespace

Findings judge_sentinels(const std::vector<SentinelFacts>& sentinels, const DoctorOptions& exam) {
  Findings findings;
  std::vector<const SentinelFacts*> heard;
  for (const SentinelFacts& each : sentinels) {
    findings.push_back(judge_sentinel(each));
    if (each.unreachable.empty() && !each.host.empty()) heard.push_back(&each);
  }
  if (heard.empty()) {
    for (Finding& each : findings) each.level = Level::error;
    return findings;
  }
  findings.push_back(judge_majority(heard));
  findings.push_back(judge_sentinel_failover(*heard.front(), exam));
  return findings;
}

Finding judge_failover(milliseconds silence, const std::string& setting,
                       const DoctorOptions& exam) {
  const std::string name = "failover";
  const auto after = std::min<milliseconds>(silence, longest_duration);
  const std::string text = "begins after " + human_duration(after) + " of silence";
  // A holder renews every third of its ttl, so two thirds are sure to be left when it begins.
  if (after < exam.ttl / 3 * 2) return good(name, text);
  return warn(
      name,
      text + ": too late for a ttl of " + human_duration(exam.ttl) + ", so it stops every job",
      setting + " 5000, or a longer -t");
}

Findings judge_cluster(const ClusterFacts& facts) {
  const std::string name = "cluster";
  Findings findings;
  for (const auto& [address, why] : facts.silent_seeds) {
    findings.push_back(warn(name, address + ": " + why.text, advice_on(why.cause, another_server)));
  }
  if (facts.shards.empty()) {
    for (Finding& each : findings) each.level = Level::error;
    if (!facts.fault.empty()) {
      findings.push_back(
          bad(name, "it names no nodes: " + facts.fault.text,
              advice_on(facts.fault.cause, "for a server on its own: --server redis://HOST")));
    } else if (findings.empty()) {
      findings.push_back(bad(name, "no node has a slot", "redis-cli --cluster create"));
    }
    return findings;
  }
  int covered = 0;
  for (const ShardFacts& shard : facts.shards) {
    for (const auto& [first, last] : shard.slots) covered += last - first + 1;
  }
  const auto state = facts.info.text("cluster_state").value_or("ok");
  const std::string masters = counted(static_cast<long long>(facts.shards.size()), "master");
  const auto known = facts.info.number("cluster_known_nodes");
  const std::string nodes = known ? " of " + counted(*known, "node") : "";
  if (covered != slots_of_a_cluster || state != "ok") {
    findings.push_back(bad(name,
                           "state " + escaped(state) + ", " + masters + ", " +
                               counted(slots_of_a_cluster - covered, "slot") +
                               " with nobody: keys cannot be locked",
                           "redis-cli --cluster fix, or bring the nodes back"));
  } else if (!facts.open_slots.empty()) {
    findings.push_back(bad(
        name,
        "slot " + joined(facts.open_slots, ", ", [](int slot) { return std::to_string(slot); }) +
            " is on its way to another master: new keys there cannot be locked "
            "until it has arrived",
        "if the move was cut off: redis-cli --cluster fix"));
  } else if (facts.shards.size() < 3) {
    findings.push_back(warn(name, masters + ": with one lost there is no majority to fail over",
                            "run three masters or more"));
  } else {
    findings.push_back(good(name, "state ok, " + masters + nodes + ", all slots served"));
  }
  return findings;
}

Findings judge_local(const LocalFacts& facts) {
  const std::string directory = escaped(facts.directory);
  if (!facts.trouble.empty()) {
    return {bad("directory", facts.trouble, "fix it, or --server local:/another")};
  }
  const auto lies_in = [&](const std::string& parent) {
    return (facts.directory + "/").starts_with(parent);
  };
  const bool is_private = lies_in("/tmp/") || lies_in("/var/tmp/");
  Findings findings{
      is_private ? warn("directory",
                        directory + ": services with PrivateTmp= of systemd see another one, and "
                                    "cleaners remove old files there",
                        "a directory of its own, such as in /run or /var/lib")
                 : good("directory", directory)};
  const auto* const shared =
      std::find_if(shared_file_systems.begin(), shared_file_systems.end(),
                   [&](const FileSystem& each) { return each.type == facts.file_system; });
  if (shared != shared_file_systems.end()) {
    findings.push_back(warn("file-system",
                            std::string(shared->name) +
                                ": if other hosts use it, their processes cannot be seen from here",
                            "a directory on a disk of this host"));
  } else {
    findings.push_back(good("file-system", "of this host"));
  }
  const auto& trouble = facts.trial.trouble;
  findings.push_back(
      trouble.empty()
          ? good("lock", "acquired, handed over in " + span_text(facts.trial.handed_over_in) +
                             ", renewed, released")
          : bad("lock", "cannot be held: " + trouble.text, "look at that directory"));
  findings.push_back(good("label",
                          "safe on this host: nothing to lose but the host; other hosts are not "
                          "kept out"));
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

}  // namespace dlock
