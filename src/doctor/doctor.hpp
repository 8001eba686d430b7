#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
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

}  // namespace dlock
