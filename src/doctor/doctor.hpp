#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "config/server_url.hpp"
#include "local/directory.hpp"
#include "lock/store.hpp"

namespace dlock {

enum class Level { ok, warning, error };

/// The result of one check: what is true and, unless all is well, what to do. Each is one line,
/// escaped.
struct Finding {
  Level level = Level::ok;
  std::string check;  ///< one word
  std::string text;
  std::string advice = {};
  bool told = true;  ///< false: the server did not report it
};

using Findings = std::vector<Finding>;

/// The result of `doctor` for one deployment.
struct Diagnosis {
  std::string server;  ///< escaped, without credentials
  std::string label;   ///< "best effort", or "safe on this host"
  Findings findings;

  Level verdict() const {
    Level worst = Level::ok;
    for (const Finding& each : findings) worst = std::max(worst, each.level);
    return worst;
  }
};

/// The kind of deployment that a Redis belongs to.
enum class Topology { single, sentinel, cluster, quorum };

/// The settings of dlock that the checks depend on.
struct DoctorOptions {
  std::string prefix = "dlock:";
  milliseconds ttl{30'000};
  int replicas = 0;
  Topology topology = Topology::single;
};

/// Opens the store of the examined deployment.
using OpenStore = std::function<StorePtr()>;

// Each function examines a deployment, tries a lock there, and runs the checks on the facts. It
// throws an Error only for wrong settings and failures of this host.

Diagnosis diagnose(const DirectorySettings& directory);
Diagnosis diagnose(const Endpoint& server, DoctorOptions options, const OpenStore&);
Diagnosis diagnose(const SentinelTarget& target, DoctorOptions options, const OpenStore&);
Diagnosis diagnose(const ClusterTarget& target, DoctorOptions options, const OpenStore&);
Diagnosis diagnose(const QuorumTarget& target, DoctorOptions options, const OpenStore&);
Diagnosis diagnose(const SqlTarget& target, const DoctorOptions& options, const OpenStore& open);
Diagnosis diagnose(const EtcdTarget& target, const DoctorOptions& options, const OpenStore& open);
Diagnosis diagnose(const ZooKeeperTarget& target, const DoctorOptions& options,
                   const OpenStore& open);
Diagnosis diagnose(const KubeTarget& target, const DoctorOptions& options, const OpenStore& open);
Diagnosis diagnose(const MemcachedTarget& target, const DoctorOptions& options,
                   const OpenStore& open);
Diagnosis diagnose(const S3Target& target, const DoctorOptions& options, const OpenStore& open);

}  // namespace dlock
