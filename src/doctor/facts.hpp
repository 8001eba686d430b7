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
#include "net/tls.hpp"

namespace dlock {

// What was found out about servers, unjudged. Texts from servers are as they came.

/// How the servers stand together, and so what is asked of each.
enum class Topology { single, sentinel, cluster, quorum };

/// What dlock is to be used with.
struct DoctorOptions {
  std::string prefix = "dlock:";
  milliseconds ttl{30'000};
  int replicas = 0;
  Topology topology = Topology::single;
};

/// Why something cannot be had of a server: for people, and what to advise by.
struct Fault {
  std::string text;  ///< empty: nothing is wrong
  Cause cause = Cause::none;

  bool empty() const { return text.empty(); }
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

/// The lock that was taken, waited for, handed over and given back for trial.
struct TrialLock {
  Fault trouble;
  std::chrono::nanoseconds handed_over_in{0};
};

struct ServerFacts {
  Endpoint endpoint;
  Fault unreachable;      ///< empty if it answered at all
  std::string broke_off;  ///< why it was not heard out
  std::chrono::nanoseconds connected_in{0};
  std::chrono::nanoseconds round_trip{0};  ///< the median of some
  std::vector<ClockSample> clock;
  WallTime seen_at{};           ///< by this host's clock
  std::optional<TlsFacts> tls;  ///< nothing in plain text
  ServerInfo hello;             ///< HELLO: server, version, mode, role
  ServerInfo info;              ///< INFO, by field
  ServerInfo config;            ///< CONFIG GET, by name
  ServerInfo role;              ///< ROLE: role, host, port, state
  std::string user;             ///< ACL WHOAMI; empty if not told

  bool tried = false;                ///< whether what follows was tried
  std::vector<std::string> missing;  ///< rights of the user, as ACL SETUSER takes them
  std::vector<std::string> absent;   ///< commands the server does not have
  std::string no_scripts;            ///< what it says to EVAL, if it runs no scripts at all
  TrialLock trial;
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

struct LocalFacts {
  std::string directory;
  std::string trouble;   ///< why it cannot be used
  long file_system = 0;  ///< f_type of statfs(2)
  TrialLock trial;
};

}  // namespace dlock
