#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The facts about one server of a ZooKeeper, unjudged.
struct ZooKeeperServerFacts {
  std::string address;
  Fault unreachable{};  ///< empty if it answered
  std::chrono::nanoseconds answered_in{0};
  std::string version{};  ///< empty: not told
  std::string mode{};     ///< empty: it does not serve, or does not tell
  std::string refusal{};  ///< what it said in place of that
};

/// The facts about a ZooKeeper.
struct ZooKeeperFacts {
  std::vector<ZooKeeperServerFacts> servers;  ///< those of the URL
  std::string trouble{};                      ///< why there is no session
  milliseconds session_asked{0};
  milliseconds session{0};  ///< granted
  std::chrono::nanoseconds round_trip{0};
  microseconds ahead{0};  ///< the leader's clock, of this host's
  bool here = false;      ///< all servers of the URL are on this host
  std::string user{};     ///< empty: none
  bool tried = false;     ///< whether a lock was
  TrialLock trial{};
};

/// From facts to findings: pure, and in the order in which people read them. `ttl`: the lease of
/// the locks that it is judged for.
Findings judge_zookeeper(const ZooKeeperFacts& facts, milliseconds ttl);

/// The worth of locks there, in some words.
std::string zookeeper_label(const ZooKeeperFacts& facts);

/// Examines a ZooKeeper, `shown` to people by that name, tries a lock there by two stores of
/// `open`, and judges it. `session`: the timeout to ask for.
Diagnosis diagnose_zookeeper(const std::vector<Endpoint>& servers, const std::string& shown,
                             const std::string& chroot, milliseconds session,
                             const DoctorOptions& exam, const std::function<StorePtr()>& open);

/// What an administrator runs to let dlock's user lock there.
std::string zookeeper_rights(const std::vector<Endpoint>& servers, const std::string& chroot);

}  // namespace dlock
