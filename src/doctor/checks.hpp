#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "config/server_url.hpp"
#include "doctor/doctor.hpp"
#include "etcd/etcd_survey.hpp"
#include "local/directory.hpp"
#include "net/tls.hpp"
#include "zookeeper/zookeeper_survey.hpp"

namespace dlock {

// Facts about servers, without a verdict. Texts from servers are not escaped yet.

/// Names and values that a server reported, or the reason why it did not.
struct ServerInfo {
  std::map<std::string, std::string> values;
  std::string refusal;  ///< `NOPERM`, `unknown command`; empty if it answered

  std::optional<std::string> text(const std::string& name) const;
  std::optional<long long> number(const std::string& name) const;
  /// Escaped for people; empty if it was not reported.
  std::string shown(const std::string& name) const;
};

/// How far the server's wall clock is ahead of this host's.
struct ClockOffset {
  std::chrono::nanoseconds ahead{0};
  std::chrono::nanoseconds unsure{0};  ///< the offset may be this much smaller or larger
};

/// The result of acquiring, handing over and releasing a lock on a scratch key.
struct TrialLock {
  Fault trouble;
  std::chrono::nanoseconds handed_over_in{0};
};

/// The facts that every engine has.
struct Facts {
  DoctorOptions options{};
  bool here = false;                 ///< all servers of the URL are on this host
  std::string user{};                ///< empty: none, or not reported by the server
  std::optional<TrialLock> trial{};  ///< nothing if no lock was tried
};

/// The facts about any server or database that is examined over one connection.
struct Contact : Facts {
  Fault unreachable{};  ///< empty if the server answered all requests
  std::chrono::nanoseconds connected_in{0};
  std::chrono::nanoseconds round_trip{0};  ///< the median of several
  std::optional<ClockOffset> clock{};      ///< the most exact of several readings
};

// The functions that obtain facts. A failure of the server becomes a fact, whose text does not have
// the prefix `shown`.

/// Reads the server's clock several times, and calls `rest`. The clock may be behind the server's
/// own by up to `behind`, because it shows whole seconds, for example.
void examine(Contact& facts, const std::string& shown,
             const std::function<std::optional<WallTime>()>& clock,
             const std::function<void()>& rest, milliseconds behind = milliseconds(0));

/// A new random key.
LockKey scratch_key();

/// Acquires the lock with one store, waits for it with another, hands it over, renews it and
/// releases it, as `run` would.
TrialLock try_lock(const OpenStore& open, const LockKey& key, const std::string& shown);

/// An error's `message` without the prefixes that name the server and the key.
std::string bare_trouble(std::string message, const std::string& name, const std::string& key = "");

bool are_on_this_host(const std::vector<Endpoint>& servers);

/// A row in the table of an engine's checks. The table constructs the finding of every row, even of
/// one that does not hold.
struct Check {
  const char* name;  ///< one word, shown to people
  bool holds;
  Finding finding;
  bool ends = false;  ///< no check after this one makes sense
};
constexpr bool ends = true;

/// The findings of a table. Each check gets the finding of its first row that holds, if any does.
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
/// `1 replica`, `2 replicas`.
std::string counted(long long number, const std::string& noun);
/// The numbers of a version before and after its first dot.
using ShortVersion = std::pair<long long, long long>;
/// Whether a version is older than `least`; false for a text that is not a version.
bool is_older(const std::string& version, ShortVersion least);

/// The advice for a failure with this cause; `otherwise` if the cause has none.
std::string advice_on(Cause cause, const char* otherwise);
/// The advice for a server that did not answer, or answered only with an error.
std::string advice_on_reach(Cause cause);

// Checks that several engines share.

Finding check_reach(const Contact& facts, const std::string& advice);
/// Returns `finding`, or a warning if one round trip takes too much of the ttl.
Finding warn_if_slow(const Finding& finding, std::chrono::nanoseconds round_trip, milliseconds ttl);
/// Names the engine and the versions of its servers; an error if one is older than `least`.
Finding check_versions(const std::string& engine, const std::set<std::string>& versions,
                       ShortVersion least);
/// Returns an empty finding if no lock was tried. `advice` is for failures whose cause has none.
Finding check_lock(const std::optional<TrialLock>& trial,
                   const char* advice = "see the server's log");
/// `consequence`: what a clock that differs from this host's does.
Finding check_clock(
    const std::optional<ClockOffset>& clock,
    const std::string& consequence = "times shown are off, and fences after a failover");
/// The check `tls` for a connection without TLS.
Finding check_plain_text(bool here, const char* advice);

// Checks of the servers of an etcd or a ZooKeeper, where a client needs to reach only one.

/// The first server that was reached; null if none was.
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

/// The check `reach` if one reached server is enough; `text` describes that server.
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

// Each engine, Redis first: its facts, whose texts from servers are not escaped yet; its checks,
// pure functions from facts to findings in the order in which they are shown; for some a short
// label that says how safe locks are there. diagnose() examines a deployment, tries a lock there,
// and runs the checks; it throws an Error only for wrong settings and failures of this host.
// rights_text() returns the text by which an administrator gives dlock's user the least rights that
// it needs; it throws Error{usage} where there are none.

/// The user in the server's URL, escaped; `otherwise` if it names none.
std::string user_of(const Endpoint& server, const char* otherwise);

/// The facts about one Redis.
struct ServerFacts : Contact {
  Endpoint endpoint;
  WallTime seen_at{};           ///< by this host's clock
  std::optional<TlsFacts> tls;  ///< nothing without TLS
  ServerInfo hello;             ///< HELLO: server, version, mode, role
  ServerInfo info;              ///< INFO, by field
  ServerInfo config;            ///< CONFIG GET, by name

  // Set only if a lock was tried.
  std::vector<std::string> missing;  ///< commands that the user may not use on dlock's keys
  std::optional<milliseconds> quarantined_for;  ///< only if a majority decides; nothing if unknown

  /// `master`, `slave`, `sentinel`, or empty. KeyDB's `active-replica` counts as a replica.
  std::string role() const;
  /// `standalone`, `cluster`, `sentinel`, or empty.
  std::string mode() const;
};

/// The answers of one sentinel.
struct SentinelFacts {
  Endpoint endpoint;
  Fault unreachable;
  std::string host;  ///< of the master; empty: the sentinel knows no such name
  std::string port;
  ServerInfo master;         ///< SENTINEL MASTER, by field
  std::string quorum_fault;  ///< the error of CKQUORUM
};

struct ClusterFacts {
  std::vector<std::pair<std::string, Fault>> silent_seeds{};  ///< by address
  Fault fault{};  ///< the error in place of CLUSTER SLOTS
  /// The masters, each with a scratch key in one of the master's slots.
  std::vector<std::pair<Endpoint, LockKey>> masters{};
  int unserved = 0;                    ///< slots without a master
  std::set<std::string> open_slots{};  ///< on their way from one master to another
  ServerInfo info{};                   ///< CLUSTER INFO, by field
};

/// Examines one Redis, and tries a lock on `scratch` if it is a master of the expected kind. Leaves
/// nothing behind.
ServerFacts examine_server(const Endpoint& endpoint, const DoctorOptions& options,
                           const LockKey& scratch);

struct Reply;
/// The reason in an error reply: `NOPERM`, `unknown command`, or its text, escaped; empty for other
/// replies.
std::string refusal_of(const Reply& reply);
/// The lines `name:value` of a reply, such as that of INFO.
ServerInfo told_in_lines(const Reply& reply);
/// Names and values in turn, as in the replies of CONFIG GET, HELLO and SENTINEL MASTER.
ServerInfo told_in_pairs(const Reply& reply);

/// Checks one Redis, by itself or as one of several masters.
Findings check_server(const ServerFacts& facts);
/// Compares the sentinels of the URL with each other and with the ttl.
Findings check_sentinels(const std::vector<SentinelFacts>& sentinels, const DoctorOptions& options);
/// Checks a Cluster as a whole; check_server checks its masters.
Findings check_cluster(const ClusterFacts& facts);
/// Compares the nodes of a majority with each other; check_server checks each of them.
Findings check_quorum(const std::vector<ServerFacts>& servers);
/// Whether a lease outlives the time without a master, if the failover begins after `silence`.
Finding check_failover(milliseconds silence, const std::string& setting, milliseconds ttl);
/// The reasons why a fact is missing: `INFO: NOPERM, CONFIG: unknown command`.
std::string refusals(const ServerFacts& facts);
/// One list of the findings of several servers, with their names. Equal findings are merged.
Findings merged(const std::vector<std::pair<std::string, Findings>>& servers);
Diagnosis diagnose(const Endpoint& server, DoctorOptions options, const OpenStore&);
Diagnosis diagnose(const SentinelTarget& target, DoctorOptions options, const OpenStore&);
Diagnosis diagnose(const ClusterTarget& target, DoctorOptions options, const OpenStore&);
Diagnosis diagnose(const QuorumTarget& target, DoctorOptions options, const OpenStore&);
std::string rights_text(const Endpoint& server, const DoctorOptions& options);
std::string rights_text(const SentinelTarget& target, const DoctorOptions& options);
std::string rights_text(const ClusterTarget& target, const DoctorOptions& options);
std::string rights_text(const QuorumTarget& target, const DoctorOptions& options);

struct LocalFacts : Facts {
  std::string directory{};
  std::string trouble{};  ///< the reason why dlock cannot use the directory
  long file_system = 0;   ///< f_type of statfs(2)
};
Findings check_local(const LocalFacts& facts);
Diagnosis diagnose(const DirectorySettings& directory);
std::string rights_text(const LocalTarget& target, const DoctorOptions& options);

struct DatabaseFacts : Contact {
  bool mysql = false;   ///< or MariaDB; otherwise PostgreSQL
  bool pooled = false;  ///< the session that answers is not the one that logged in
  ServerInfo settings;  ///< by the names of sql.cpp and of the server's variables
};
Findings check_database(const DatabaseFacts& facts);
std::string label_of(const DatabaseFacts& facts);
Diagnosis diagnose(const SqlTarget& target, const DoctorOptions& options, const OpenStore& open);
std::string rights_text(const SqlTarget& target, const DoctorOptions& options);

struct EtcdFacts : Facts, EtcdStatus {
  std::vector<EtcdMemberStatus> members{};  ///< those of the URL
  bool tls = false;
};
Findings check_etcd(const EtcdFacts& facts);
std::string label_of(const EtcdFacts& facts);
/// Whether a member of this version may end a lease before it expires
/// (https://github.com/etcd-io/etcd/issues/15247).
bool loses_leases(const std::string& version);
Diagnosis diagnose(const EtcdTarget& target, const DoctorOptions& options, const OpenStore& open);
std::string rights_text(const EtcdTarget& target, const DoctorOptions& options);

struct ZooKeeperFacts : Facts, ZooKeeperStatus {
  std::vector<ZooKeeperServerStatus> servers{};  ///< those of the URL
  milliseconds session_asked{0};
};
Findings check_zookeeper(const ZooKeeperFacts& facts);
std::string label_of(const ZooKeeperFacts& facts);
Diagnosis diagnose(const ZooKeeperTarget& target, const DoctorOptions& options,
                   const OpenStore& open);
std::string rights_text(const ZooKeeperTarget& target, const DoctorOptions& options);

struct KubeFacts : Contact {
  std::string url{};
  bool encrypted = true;
  std::string version{};  ///< `v1.34.4`
  std::string name_space{};
  std::vector<std::string> missing{};  ///< the verbs on leases that the account may not use
};
Findings check_kubernetes(const KubeFacts& facts);
std::string label_of(const KubeFacts& facts);
Diagnosis diagnose(const KubeTarget& target, const DoctorOptions& options, const OpenStore& open);
std::string rights_text(const KubeTarget& target, const DoctorOptions& options);

struct MemcachedFacts : Contact {
  ServerInfo stats;     ///< of `stats`, by name
  ServerInfo settings;  ///< of `stats settings`
};
Findings check_memcached(const MemcachedFacts& facts);
Diagnosis diagnose(const MemcachedTarget& target, const DoctorOptions& options,
                   const OpenStore& open);
std::string rights_text(const MemcachedTarget& target, const DoctorOptions& options);

struct S3Facts : Contact {
  std::string region{};
  std::string folder{};
  Fault ignored{};           ///< empty if the store honours conditions
  std::string versioning{};  ///< `Enabled`, `Suspended`; empty: it never was
  std::string versioning_not_told{};
  bool tls = false;
};
Findings check_s3(const S3Facts& facts);
std::string label_of(const S3Facts& facts);
Diagnosis diagnose(const S3Target& target, const DoctorOptions& options, const OpenStore& open);
std::string rights_text(const S3Target& target, const DoctorOptions& options);

}  // namespace dlock
