#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "config/server_url.hpp"
#include "doctor/doctor.hpp"
#include "etcd/etcd_status.hpp"
#include "net/tls.hpp"
#include "zookeeper/zookeeper_status.hpp"

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

/// One reading of the server's clock.
struct ClockSample {
  Deadline sent;
  Deadline received;
  WallTime here;    ///< this host's wall clock at `sent`
  WallTime server;  ///< somewhere between `sent` and `received`
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
  std::string user{};                ///< empty: none, or not told
  std::optional<TrialLock> trial{};  ///< nothing if no lock was tried
};

/// The facts about any server or database that is examined over one connection.
struct Contact : Facts {
  Fault unreachable{};      ///< empty if it answered at all
  bool denied = false;      ///< it answered, and refused the login
  std::string broke_off{};  ///< why it did not answer all requests
  std::chrono::nanoseconds connected_in{0};
  std::chrono::nanoseconds round_trip{0};  ///< the median of several
  std::vector<ClockSample> clock{};
};

/// A Redis.
struct ServerFacts : Contact {
  Endpoint endpoint;
  WallTime seen_at{};           ///< by this host's clock
  std::optional<TlsFacts> tls;  ///< nothing without TLS
  ServerInfo hello;             ///< HELLO: server, version, mode, role
  ServerInfo info;              ///< INFO, by field
  ServerInfo config;            ///< CONFIG GET, by name

  // Set only if a lock was tried.
  std::vector<std::string> missing;  ///< rights of the user, as ACL SETUSER takes them
  std::vector<std::string> absent;   ///< commands the server does not have
  std::string no_scripts;            ///< what it says to EVAL, if it runs no scripts at all
  std::optional<milliseconds> quarantined_for;  ///< only if a majority decides; nothing if unknown

  /// `master`, `slave`, `sentinel`, `active-replica`, or empty.
  std::string role() const;
  /// `standalone`, `cluster`, `sentinel`, or empty.
  std::string mode() const;
};

/// The answers of one sentinel.
struct SentinelFacts {
  Endpoint endpoint;
  Fault unreachable;
  std::string host;  ///< of the master; empty: it knows no such name
  std::string port;
  ServerInfo master;         ///< SENTINEL MASTER, by field
  std::string quorum_fault;  ///< the error of CKQUORUM
};

struct ClusterFacts {
  std::vector<std::pair<std::string, Fault>> silent_seeds{};  ///< by address
  Fault fault{};  ///< the error in place of CLUSTER SLOTS
  /// Each with a scratch key in one of its slots.
  std::vector<std::pair<Endpoint, LockKey>> masters{};
  int unserved = 0;            ///< slots without a master
  ServerInfo info{};           ///< CLUSTER INFO, by field
  std::set<int> open_slots{};  ///< migrating from one master to another
};

enum class DatabaseKind { postgres, mysql };

struct DatabaseFacts : Contact {
  DatabaseKind kind = DatabaseKind::postgres;
  bool pooled = false;  ///< the session that answers is not the one that logged in
  bool socket = false;  ///< a Unix socket; like `here`, unknown if pooled
  /// The names are those in sql_facts.cpp, or MySQL's names of its variables.
  ServerInfo settings;
};

struct EtcdFacts : Facts, EtcdStatus {
  std::vector<EtcdMemberStatus> members{};  ///< those of the URL
  bool tls = false;
};

struct ZooKeeperFacts : Facts, ZooKeeperStatus {
  std::vector<ZooKeeperServerStatus> servers{};  ///< those of the URL
  milliseconds session_asked{0};
};

struct LocalFacts : Facts {
  std::string directory{};
  std::string trouble{};  ///< the reason why it cannot be used
  long file_system = 0;   ///< f_type of statfs(2)
};

// How facts are obtained. A failure of the server becomes a fact. The prefix `shown` is removed
// from its text.

/// Reads the server's clock several times, calls `rest`, and reads the clock once more after 300 ms
/// to see its pace.
void examine(Contact& facts, const std::string& shown,
             const std::function<std::optional<WallTime>()>& clock,
             const std::function<void()>& rest);

/// A new random key.
LockKey scratch_key();

/// Acquires the lock with one store, waits for it with another, hands it over, renews it and
/// releases it, as `run` would.
TrialLock try_lock(const OpenStore& open, const LockKey& key, const std::string& shown);

/// An error's `message` without the parts that its reader knows: the prefixes that name the server
/// and the key, and the place in the script.
std::string bare_trouble(std::string message, const std::string& name, const std::string& key = "");

bool are_on_this_host(const std::vector<Endpoint>& servers);

/// Examines one Redis, and tries a lock on `scratch` if it is a master of the expected kind. Leaves
/// nothing behind.
ServerFacts examine_server(const Endpoint& endpoint, const DoctorOptions& options,
                           const LockKey& scratch);
/// Asks one sentinel for its master of this name.
SentinelFacts examine_sentinel(const Endpoint& sentinel, const std::string& master_name);
/// Asks the seeds in turn, until one describes the Cluster, and then its masters for open slots.
ClusterFacts examine_cluster(const std::vector<Endpoint>& seeds, const std::string& prefix);

/// Examines a database, without a lock.
DatabaseFacts examine_database(const SqlTarget& target);

}  // namespace dlock
