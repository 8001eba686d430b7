#include "doctor/zookeeper.hpp"

#include <algorithm>
#include <set>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "doctor/examine_redis.hpp"
#include "doctor/finding.hpp"

#ifdef DLOCK_WITH_ZOOKEEPER
#include "zookeeper/zookeeper_status.hpp"
#endif

namespace dlock {
namespace {

constexpr ShortVersion least_zookeeper{3, 5};

const ZooKeeperServerStatus* first_reached(const ZooKeeperFacts& facts) {
  const auto found = std::find_if(facts.servers.begin(), facts.servers.end(),
                                  [](const auto& each) { return each.unreachable.empty(); });
  return found == facts.servers.end() ? nullptr : &*found;
}

/// Whether any server reported its mode.
bool tells_mode(const ZooKeeperFacts& facts) {
  return std::any_of(facts.servers.begin(), facts.servers.end(),
                     [](const auto& each) { return !each.mode.empty(); });
}

/// Whether the server has lost its connections to the others.
bool is_cut_off(const ZooKeeperServerStatus& server) {
  return server.mode.empty() && server.refusal.find("not currently serving") != std::string::npos;
}

std::string mode_text(const ZooKeeperServerStatus& server) {
  if (!server.mode.empty()) return escaped(server.mode);
  return is_cut_off(server) ? "does not serve" : "does not tell its mode";
}

/// Why the server reported no mode.
std::string why_untold(const ZooKeeperServerStatus& server) {
  return server.refusal.empty() ? "srvr" : "srvr: " + escaped(server.refusal);
}

bool is_standalone(const ZooKeeperFacts& facts) {
  return std::any_of(facts.servers.begin(), facts.servers.end(),
                     [](const auto& each) { return each.mode == "standalone"; });
}

Finding judge_zookeeper_reach(const ZooKeeperFacts& facts) {
  std::vector<const Fault*> unreachable;
  for (const ZooKeeperServerStatus& each : facts.servers) {
    if (!each.unreachable.empty()) unreachable.push_back(&each.unreachable);
  }
  std::optional<std::string> text;
  if (const auto* reached = first_reached(facts)) {
    text = "answers in " + span_text(reached->answered_in);
  }
  return check_reach_of_any(text, unreachable);
}

Finding judge_zookeeper_engine(const ZooKeeperFacts& facts) {
  std::set<std::string> versions;
  for (const ZooKeeperServerStatus& each : facts.servers) {
    if (!each.version.empty()) versions.insert(each.version);
  }
  if (versions.empty()) return not_told(why_untold(*first_reached(facts)));
  return check_versions("ZooKeeper", versions, least_zookeeper);
}

Finding judge_zookeeper_session(const ZooKeeperFacts& facts) {
  if (!facts.trouble.empty()) {
    return bad(facts.trouble,
               "most of its servers must run and reach each other, and the user needs rights");
  }
  const std::string text = "of " + human_duration(facts.session) + ", writes and reads in " +
                           span_text(facts.round_trip);
  if (facts.session <= facts.session_asked) {
    return warn_if_slow(good(text), facts.round_trip, facts.ttl);
  }
  return warn(text + ": a lock whose holder was killed is free after that, not after " +
                  human_duration(facts.session_asked),
              "a smaller minSessionTimeout on the servers, or a longer -t");
}

Finding judge_zookeeper_servers(const ZooKeeperFacts& facts) {
  if (is_standalone(facts)) return good("one server, whose failure nothing survives");
  std::string text;
  for (const ZooKeeperServerStatus& each : facts.servers) {
    if (!each.unreachable.empty()) continue;
    text += (text.empty() ? "" : ", ") + each.address + " " + mode_text(each);
  }
  if (std::any_of(facts.servers.begin(), facts.servers.end(), is_cut_off)) {
    return warn(text, "see its log, and its network to the others");
  }
  if (!tells_mode(facts)) return not_told(why_untold(*first_reached(facts)));
  return good(text);
}

Finding judge_zookeeper_clock(const ZooKeeperFacts& facts) {
  constexpr std::chrono::seconds tolerated{2};
  const auto off = std::chrono::abs(std::chrono::floor<milliseconds>(facts.ahead));
  if (off < tolerated) return good("the leader's, within " + span_text(tolerated));
  return warn("the leader's is " + human_duration(off) +
                  (facts.ahead.count() > 0 ? " ahead of" : " behind") + " this host's",
              "leases go by the leader's, and times shown may look odd: run NTP on both");
}

}  // namespace

std::string zookeeper_label(const ZooKeeperFacts& facts) {
  if (!tells_mode(facts)) return "best effort: whether a majority keeps the locks is not known";
  return is_standalone(facts) ? "as safe as its disk" : "safe while a majority lives";
}

namespace {

Finding judge_zookeeper_user(const ZooKeeperFacts& facts) {
  return good(facts.user.empty() ? "none: everybody may change the nodes"
                                 : escaped(facts.user) + ", whose nodes are closed to others");
}

constexpr Check<ZooKeeperFacts> zookeeper_checks[] = {
    {"reach", judge_zookeeper_reach},
    {"engine", judge_zookeeper_engine},
    {"session", judge_zookeeper_session, nullptr, true},
    {"quorum", judge_zookeeper_servers},
    {"clock", judge_zookeeper_clock},
    {"tls",
     [](const ZooKeeperFacts& facts) {
       return check_plain_text(facts.here, "a network of its own, or a tunnel");
     }},
    {"user", judge_zookeeper_user},
    lock_row<ZooKeeperFacts>,
    {"label", [](const ZooKeeperFacts& facts) { return good(zookeeper_label(facts)); }}};

}  // namespace

Findings judge_zookeeper(const ZooKeeperFacts& facts) {
  if (first_reached(facts) == nullptr) return {named("reach", judge_zookeeper_reach(facts))};
  return run_checks(facts, zookeeper_checks);
}

#ifdef DLOCK_WITH_ZOOKEEPER
Diagnosis diagnose_zookeeper(const std::vector<Endpoint>& servers, const std::string& shown,
                             const std::string& chroot, milliseconds session,
                             const DoctorOptions& exam, const std::function<StorePtr()>& open) {
  ZooKeeperFacts facts;
  for (const Endpoint& server : servers) facts.servers.push_back(ask_server(server, short_call()));
  if (first_reached(facts) != nullptr) {
    static_cast<ZooKeeperStatus&>(facts) =
        ask_zookeeper(servers, shown, chroot, exam.prefix, session, short_call());
    facts.trouble = bare_trouble(facts.trouble, shown);
    if (facts.trouble.empty()) {
      facts.tried = true;
      facts.trial = try_lock(open, scratch_key(), shown);
    }
  }
  facts.ttl = exam.ttl;
  facts.session_asked = session;
  facts.user = servers.front().user.value_or("");
  facts.here = are_on_this_host(servers);
  return {shown, zookeeper_label(facts), judge_zookeeper(facts)};
}
#else
Diagnosis diagnose_zookeeper(const std::vector<Endpoint>&, const std::string&, const std::string&,
                             milliseconds, const DoctorOptions&, const std::function<StorePtr()>&) {
  throw_usage("this dlock was built without ZooKeeper");
}
#endif

std::string zookeeper_rights(const std::vector<Endpoint>& servers, const std::string& chroot) {
  const std::string user = servers.front().user ? escaped(*servers.front().user) : "USER";
  const std::string path = chroot.empty() ? "/" : escaped(chroot);
  return "# in zkCli.sh, as who may change the rights on " + path +
         ":\n"
         "addauth digest " +
         user +
         ":PASSWORD\n"
         "setAcl " +
         path + " auth:" + user + ":PASSWORD:cdrwa\n";
}

}  // namespace dlock
