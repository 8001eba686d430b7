#include <algorithm>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "zookeeper/zookeeper_backend.hpp"

namespace dlock {
namespace {

constexpr ShortVersion least_zookeeper{3, 5};

/// The modes that servers reported.
std::set<std::string> modes_of(const ZooKeeperFacts& facts) {
  std::set<std::string> modes;
  for (const ZooKeeperServerStatus& each : facts.servers) {
    if (!each.mode.empty()) modes.insert(each.mode);
  }
  return modes;
}

/// Whether the server has lost its connections to the other servers of the ensemble.
bool is_cut_off(const ZooKeeperServerStatus& server) {
  return server.mode.empty() && server.refusal.find("not currently serving") != std::string::npos;
}

std::string mode_text(const ZooKeeperServerStatus& server) {
  if (!server.mode.empty()) return escaped(server.mode);
  return is_cut_off(server) ? "does not serve" : "does not tell its mode";
}

}  // namespace

std::string label_of(const ZooKeeperFacts& facts) {
  const std::set<std::string> modes = modes_of(facts);
  if (modes.empty()) return "best effort: whether a majority keeps the locks is not known";
  return modes.contains("standalone") ? "as safe as its disk" : "safe while a majority lives";
}

Findings check_zookeeper(const ZooKeeperFacts& facts) {
  const auto* reached = first_reached(facts.servers);
  const ZooKeeperServerStatus server = reached == nullptr ? ZooKeeperServerStatus{} : *reached;
  const Finding reach =
      check_reach_of_any("answers in " + span_text(server.answered_in), facts.servers);
  const std::string untold = server.refusal.empty() ? "srvr" : "srvr: " + escaped(server.refusal);
  const std::set<std::string> versions = versions_of(facts.servers);
  const std::string session = sentence("of {}, writes and reads in {}",
                                       human_duration(facts.session), span_text(facts.round_trip));
  const std::set<std::string> modes = modes_of(facts);
  std::string told_modes;
  for (const ZooKeeperServerStatus& each : facts.servers) {
    if (!each.unreachable.empty()) continue;
    told_modes += (told_modes.empty() ? "" : ", ") + each.address + " " + mode_text(each);
  }
  return first_rows({
      {"reach", true, reach, reached == nullptr},
      {"engine", versions.empty(), not_told(untold)},
      {"engine", true, check_versions("ZooKeeper", versions, least_zookeeper)},
      {"session", !facts.trouble.empty(),
       bad(facts.trouble,
           "most of its servers must run and reach each other, and the user needs rights"),
       ends},
      {"session", facts.session <= facts.session_asked,
       warn_if_slow(good(session), facts.round_trip, facts.options.ttl)},
      {"session", true,
       warn(sentence("{}: a lock whose holder was killed is free after that, not after {}", session,
                     human_duration(facts.session_asked)),
            "a smaller minSessionTimeout on the servers, or a longer -t")},
      {"quorum", modes.contains("standalone"), good("one server, whose failure nothing survives")},
      {"quorum", std::any_of(facts.servers.begin(), facts.servers.end(), is_cut_off),
       warn(told_modes, "see its log, and its network to the others")},
      {"quorum", modes.empty(), not_told(untold)},
      {"quorum", true, good(told_modes)},
      {"clock", true,
       check_clock(ClockOffset{facts.ahead, facts.round_trip},
                   "leases go by the leader's, and times shown may look odd")},
      {"tls", true, check_plain_text(facts.here, "a network of its own, or a tunnel")},
      {"user", facts.user.empty(), good("none: everybody may change the nodes")},
      {"user", true, good(escaped(facts.user) + ", whose nodes are closed to others")},
      {"lock", facts.trial.has_value(), check_lock(facts.trial)},
      {"label", true, good(label_of(facts))},
  });
}

Diagnosis diagnose(const ZooKeeperTarget& target, const DoctorOptions& options,
                   const OpenStore& open) {
  ZooKeeperFacts facts;
  facts.options = options;
  facts.session_asked = session_for(options.ttl);
  facts.user = target.servers.front().user.value_or("");
  facts.here = are_on_this_host(target.servers);
#ifdef DLOCK_WITH_ZOOKEEPER
  for (const Endpoint& each : target.servers) {
    facts.servers.push_back(ask_server(each, short_call()));
  }
  if (first_reached(facts.servers) != nullptr) {
    static_cast<ZooKeeperStatus&>(facts) =
        ask_zookeeper(target.servers, target.name(), target.chroot, options.prefix,
                      facts.session_asked, short_call());
    facts.trouble = bare_trouble(facts.trouble, target.name());
    if (facts.trouble.empty()) facts.trial = try_lock(open, scratch_key(), target.name());
  }
#endif
  return {target.name(), label_of(facts), check_zookeeper(facts)};
}

std::string rights_text(const ZooKeeperTarget& target, const DoctorOptions&) {
  const std::string user = user_of(target.servers.front(), "USER");
  const std::string path = target.chroot.empty() ? "/" : escaped(target.chroot);
  return sentence(
      "# in zkCli.sh, as who may change the rights on {}:\n"
      "addauth digest {}:PASSWORD\n"
      "setAcl {} auth:{}:PASSWORD:cdrwa\n",
      path, user, path, user);
}

}  // namespace dlock
