#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "etcd/etcd_status.hpp"
#include "net/tls.hpp"
#include "zookeeper/zookeeper_status.hpp"

namespace dlock {

// What was found out about servers, before any verdict. Texts from servers are as they came.

/// How the servers stand together, and so what is asked of each.
enum class Topology { single, sentinel, cluster, quorum };

/// What dlock is to be used with.
struct DoctorOptions {
  std::string prefix = "dlock:";
  milliseconds ttl{30'000};
  int replicas = 0;
  Topology topology = Topology::single;
};

/// What a server says of itself, or why it does not.
struct ServerInfo {
  std::map<std::string, std::string> values;
  std::string refusal;  ///< `NOPERM`, `unknown command`; empty if it answered

  std::optional<std::string> text(const std::string& name) const;
  std::optional<long long> number(const std::string& name) const;
};

/// One reading of the server's clock.
struct ClockSample {
  Deadline sent;
  Deadline received;
  WallTime here;    ///< this host's wall clock at `sent`
  WallTime server;  ///< somewhere between `sent` and `received`
};

/// The lock that was taken, waited for, handed over and released for trial.
struct TrialLock {
  Fault trouble;
  std::chrono::nanoseconds handed_over_in{0};
};

/// How a server or database answered that is examined over one connection.
struct Contact {
  DoctorOptions exam;
  Fault unreachable;      ///< empty if it answered at all
  bool denied = false;    ///< it did, with a refusal of the login
  std::string broke_off;  ///< why it did not answer all requests
  std::chrono::nanoseconds connected_in{0};
  std::chrono::nanoseconds round_trip{0};  ///< the median of some
  std::vector<ClockSample> clock;
  bool tried = false;  ///< whether a lock was
  TrialLock trial;
};

/// A Redis.
struct ServerFacts : Contact {
  Endpoint endpoint;
  WallTime seen_at{};           ///< by this host's clock
  std::optional<TlsFacts> tls;  ///< nothing in plain text
  ServerInfo hello;             ///< HELLO: server, version, mode, role
  ServerInfo info;              ///< INFO, by field
  ServerInfo config;            ///< CONFIG GET, by name
  ServerInfo role;              ///< ROLE: role, host, port, state
  std::string user;             ///< ACL WHOAMI; empty if not told

  // Known only if a lock was tried.
  std::vector<std::string> missing;  ///< rights of the user, as ACL SETUSER takes them
  std::vector<std::string> absent;   ///< commands the server does not have
  std::string no_scripts;            ///< what it says to EVAL, if it runs no scripts at all
  std::optional<milliseconds> quarantined_for;  ///< of one of several; nothing if not told
};

/// One sentinel's view.
struct SentinelFacts {
  Endpoint endpoint;
  Fault unreachable;
  std::string host;  ///< of the master it names; empty: it knows none of this name
  std::string port;
  ServerInfo master;         ///< SENTINEL MASTER, by field
  std::string quorum_fault;  ///< what CKQUORUM complains of
};

constexpr int slots_of_a_cluster = 16384;

/// One master of a Cluster.
struct ShardFacts {
  Endpoint master;
  std::vector<std::pair<int, int>> slots;  ///< first and last of each range it has
};

struct ClusterFacts {
  std::vector<std::pair<std::string, Fault>> silent_seeds;  ///< by address
  Fault fault;  ///< what a seed says instead of CLUSTER SLOTS
  std::vector<ShardFacts> shards;
  ServerInfo info;           ///< CLUSTER INFO, by field
  std::set<int> open_slots;  ///< on their way from one master to another
};

enum class DatabaseKind { postgres, mysql };

struct DatabaseFacts : Contact {
  DatabaseKind kind = DatabaseKind::postgres;
  bool pooled = false;  ///< another session answers than the one that was logged in
  bool socket = false;  ///< a Unix socket; known only if not pooled, as is `here`
  bool here = false;    ///< the server is on this host
  /// By the names in examine_postgres.cpp, or those that MySQL has for its variables.
  ServerInfo settings;
};

struct EtcdFacts : EtcdStatus {
  std::vector<EtcdMemberStatus> members{};  ///< those of the URL
  milliseconds ttl{30'000};                 ///< the lease of the locks that it is judged for
  bool tls = false;
  bool here = false;   ///< all members of the URL are on this host
  std::string user{};  ///< empty: none
  bool tried = false;  ///< whether a lock was
  TrialLock trial{};
};

struct ZooKeeperFacts : ZooKeeperStatus {
  std::vector<ZooKeeperServerStatus> servers{};  ///< those of the URL
  milliseconds ttl{30'000};                      ///< the lease of the locks that it is judged for
  milliseconds session_asked{0};
  bool here = false;   ///< all servers of the URL are on this host
  std::string user{};  ///< empty: none
  bool tried = false;  ///< whether a lock was
  TrialLock trial{};
};

struct LocalFacts {
  std::string directory;
  std::string trouble;   ///< why it cannot be used
  long file_system = 0;  ///< f_type of statfs(2)
  TrialLock trial;
};

}  // namespace dlock
