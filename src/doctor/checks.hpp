#pragma once

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "doctor/doctor.hpp"
#include "doctor/facts.hpp"

namespace dlock {

/// A row in the table of an engine's checks. The findings of all rows are made, also of those that
/// do not hold.
struct Check {
  const char* name;  ///< one word, shown to people
  bool holds;
  Finding finding;
  bool ends = false;  ///< no check after this one makes sense
};
constexpr bool ends = true;

/// The finding of each check: of its first row that holds, if any does.
Findings first_rows(std::initializer_list<Check> table);
void append(Findings& to, Findings more);

// The findings of rows, without the name of the check.

inline Finding good(std::string text) { return {Level::ok, "", std::move(text)}; }
inline Finding warn(std::string text, std::string advice) {
  return {Level::warning, "", std::move(text), std::move(advice)};
}
inline Finding bad(std::string text, std::string advice) {
  return {Level::error, "", std::move(text), std::move(advice)};
}

/// The finding for a fact that the server did not report; `why` is for example `INFO: NOPERM`.
inline Finding not_told(const std::string& why) {
  return {Level::ok, "", "not told (" + why + ")", "", false};
}

std::string filled_in(std::string_view form, std::initializer_list<std::string> parts);
/// `form` with each `{}` replaced by the next of `parts`, which are texts or whole numbers.
template <typename... Parts>
std::string sentence(std::string_view form, const Parts&... parts) {
  const auto as_text = [](const auto& part) -> std::string {
    if constexpr (std::is_integral_v<std::decay_t<decltype(part)>>) {
      return std::to_string(part);
    } else {
      return std::string(part);
    }
  };
  return filled_in(form, {as_text(parts)...});
}

/// `0.21 ms`, `12 ms`, `2.5 s`.
std::string span_text(std::chrono::nanoseconds span);
/// `1.2M`, as redis.conf has it.
std::string size_text(long long bytes);
/// `1 replica`, `2 replicas`.
std::string counted(long long number, const std::string& noun);
/// The numbers before the first dot of a version and after it.
using ShortVersion = std::pair<long long, long long>;
/// Whether a version is older than `least`; false for a text that is no version.
bool is_older(const std::string& version, ShortVersion least);

/// The advice for a failure with this cause; `otherwise` if the cause has none.
std::string advice_on(Cause cause, const char* otherwise);
/// The same for a server that did not answer, or only with an error.
std::string advice_on_reach(Cause cause);

// Checks that several engines share.

Finding check_reach(const Contact& facts, const std::string& advice);
/// Returns `finding`, or a warning if one round trip takes too much of the ttl.
Finding warn_if_slow(const Finding& finding, std::chrono::nanoseconds round_trip, milliseconds ttl);
/// Names the engine and the versions of its servers; an error if one is older than `least`.
Finding check_versions(const std::string& engine, const std::set<std::string>& versions,
                       ShortVersion least);
/// Says nothing if no lock was tried.
Finding check_lock(
    const std::optional<TrialLock>& trial,
    const std::string& advice = "see the findings above, and dlock doctor --acl for the rights");
Finding check_clock(const std::vector<ClockSample>& clock);
/// The most exact of several readings.
const ClockSample& nearest_reading(const std::vector<ClockSample>& clock);
/// The check `tls` for a connection without it.
Finding check_plain_text(bool here, const char* advice);

// Checks of several servers if one is enough: members of an etcd, servers of a ZooKeeper.

/// Null if no server was reached.
template <typename Server>
const Server* first_reached(const std::vector<Server>& servers) {
  for (const Server& each : servers) {
    if (each.unreachable.empty()) return &each;
  }
  return nullptr;
}

template <typename Server>
std::set<std::string> versions_of(const std::vector<Server>& servers) {
  std::set<std::string> versions;
  for (const Server& each : servers) {
    if (each.unreachable.empty() && !each.version.empty()) versions.insert(each.version);
  }
  return versions;
}

/// `text` describes the server that was reached.
template <typename Server>
Finding check_reach_of_any(const std::string& text, const std::vector<Server>& servers) {
  for (const Server& each : servers) {
    const Fault& fault = each.unreachable;
    if (fault.empty()) continue;
    if (first_reached(servers) == nullptr) return bad(fault.text, advice_on_reach(fault.cause));
    return warn(text + "; " + fault.text,
                "it is asked if the others fail: start it, or name others");
  }
  return good(text);
}

// The checks of each engine, pure functions from facts to findings, in the order in which they are
// shown; and for some a short label that says how safe locks are there.

/// For one Redis, by itself or as one of several masters.
Findings check_server(const ServerFacts& facts);
/// The sentinels of the URL against each other and the ttl.
Findings check_sentinels(const std::vector<SentinelFacts>& sentinels, const DoctorOptions& options);
/// A Cluster as a whole; check_server checks its masters.
Findings check_cluster(const ClusterFacts& facts);
/// The nodes of a majority against each other; check_server checks each of them.
Findings check_quorum(const std::vector<ServerFacts>& servers);
/// Whether a lease outlives the time without a master, if the failover begins after `silence`.
Finding check_failover(milliseconds silence, const std::string& setting, milliseconds ttl);
/// The reasons why a fact is missing: `INFO: NOPERM, CONFIG: unknown command`.
std::string refusals(const ServerFacts& facts);
/// One list of the findings of several servers, with their names. Equal findings are merged.
Findings merged(const std::vector<std::pair<std::string, Findings>>& servers);

Findings check_local(const LocalFacts& facts);

Findings check_database(const DatabaseFacts& facts);
std::string label_of(const DatabaseFacts& facts);
/// Whether the server accepts locks: only a primary does.
bool takes_locks(const DatabaseFacts& facts);

Findings check_etcd(const EtcdFacts& facts);
std::string label_of(const EtcdFacts& facts);
/// Whether a member of this version may end a lease that lives
/// (https://github.com/etcd-io/etcd/issues/15247).
bool loses_leases(const std::string& version);

Findings check_zookeeper(const ZooKeeperFacts& facts);
std::string label_of(const ZooKeeperFacts& facts);

}  // namespace dlock
