#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace dlock {

enum class Level { ok, warning, error };

/// One check as people read it: what was found and, unless all is well, what to do. One line each,
/// escaped.
struct Finding {
  Level level = Level::ok;
  std::string check;  ///< one word
  std::string text;
  std::string advice = {};
  bool told = true;  ///< false: the server did not let it be known
};

using Findings = std::vector<Finding>;

/// What `doctor` has to say about the place where locks live.
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

}  // namespace dlock
