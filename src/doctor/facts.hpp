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

// Facts about servers, without a verdict. Texts from servers are not escaped yet.

/// The kind of deployment that a Redis belongs to.
enum class Topology { single, sentinel, cluster, quorum };

/// The settings of dlock that the checks depend on.
struct DoctorOptions {
  std::string prefix = "dlock:";
  milliseconds ttl{30'000};
  int replicas = 0;
  Topology topology = Topology::single;
};

/// Names and values that a server reported, or the reason why it did not.
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

/// The result of acquiring, handing over and releasing a lock on a scratch key.
struct TrialLock {
  Fault trouble;
  std::chrono::nanoseconds handed_over_in{0};
};

/// The facts about any server or database that is examined over one connection.
struct Contact {
  DoctorOptions exam;
  Fault unreachable;      ///< empty if it answered at all
  bool denied = false;    ///< it answered, and refused the login
  std::string broke_off;  ///< why it did not answer all requests
  std::chrono::nanoseconds connected_in{0};
  std::chrono::nanoseconds round_trip{0};  ///< the median of several
  std::vector<ClockSample> clock;
  bool tried = false;  ///< whether a lock was
  TrialLock trial;
};

/// A Redis.
struct ServerFacts : Contact {
  Endpoint endpoint;
  WallTime seen_at{};           ///< by this host's clock
  std::optional<TlsFacts> tls;  ///< nothing without TLS
  ServerInfo hello;             ///< HELLO: server, version, mode, role
  ServerInfo info;              ///< INFO, by field
  ServerInfo config;            ///< CONFIG GET, by name
  ServerInfo role;              ///< ROLE: role, host, port, state
  std::string user;             ///< ACL WHOAMI; empty if not told

  // Set only if a lock was tried.
  std::vector<std::string> missing;  ///< rights of the user, as ACL SETUSER takes them
  std::vector<std::string> absent;   ///< commands the server does not have
  std::string no_scripts;            ///< what it says to EVAL, if it runs no scripts at all
  std::optional<milliseconds> quarantined_for;  ///< only if a majority decides; nothing if unknown
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

constexpr int slots_of_a_cluster = 16384;

/// One master of a Cluster.
struct ShardFacts {
  Endpoint master;
  std::vector<std::pair<int, int>> slots;  ///< first and last slot of each range
};

struct ClusterFacts {
  std::vector<std::pair<std::string, Fault>> silent_seeds;  ///< by address
  Fault fault;                                              ///< the error in place of CLUSTER SLOTS
  std::vector<ShardFacts> shards;
  ServerInfo info;           ///< CLUSTER INFO, by field
  std::set<int> open_slots;  ///< migrating from one master to another
};

enum class DatabaseKind { postgres, mysql };

struct DatabaseFacts : Contact {
  DatabaseKind kind = DatabaseKind::postgres;
  bool pooled = false;  ///< the session that answers is not the one that logged in
  bool socket = false;  ///< a Unix socket; like `here`, unknown if pooled
  bool here = false;    ///< the server is on this host
  /// The names are those in examine_postgres.cpp, or MySQL's names of its variables.
  ServerInfo settings;
};

struct EtcdFacts : EtcdStatus {
  std::vector<EtcdMemberStatus> members{};  ///< those of the URL
  milliseconds ttl{30'000};                 ///< the lease that the checks assume
  bool tls = false;
  bool here = false;   ///< all members of the URL are on this host
  std::string user{};  ///< empty: none
  bool tried = false;  ///< whether a lock was
  TrialLock trial{};
};

struct ZooKeeperFacts : ZooKeeperStatus {
  std::vector<ZooKeeperServerStatus> servers{};  ///< those of the URL
  milliseconds ttl{30'000};                      ///< the lease that the checks assume
  milliseconds session_asked{0};
  bool here = false;   ///< all servers of the URL are on this host
  std::string user{};  ///< empty: none
  bool tried = false;  ///< whether a lock was
  TrialLock trial{};
};

struct LocalFacts {
  std::string directory;
  std::string trouble;   ///< the reason why it cannot be used
  long file_system = 0;  ///< f_type of statfs(2)
  TrialLock trial;
};

}  // namespace dlock
