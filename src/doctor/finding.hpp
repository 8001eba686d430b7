#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "doctor/facts.hpp"

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

/// One row in the table of checks of an engine.
template <typename Facts>
struct Check {
  const char* name;  ///< one word, shown to people
  Finding (*of)(const Facts&);
  bool (*applies)(const Facts&) = nullptr;  ///< null: always
  bool decides = false;                     ///< an error here ends the table
};

template <typename Facts, typename Table>
Findings run_checks(const Facts& facts, const Table& table) {
  Findings findings;
  for (const Check<Facts>& check : table) {
    if (check.applies != nullptr && !check.applies(facts)) continue;
    findings.push_back(check.of(facts));
    findings.back().check = check.name;
    if (check.decides && findings.back().level == Level::error) break;
  }
  return findings;
}

// A check returns one of these. run_checks adds the name of the check; `named` does so elsewhere.

inline Finding good(std::string text) { return {Level::ok, "", std::move(text)}; }
inline Finding warn(std::string text, std::string advice) {
  return {Level::warning, "", std::move(text), std::move(advice)};
}
inline Finding bad(std::string text, std::string advice) {
  return {Level::error, "", std::move(text), std::move(advice)};
}
/// For a fact that the server did not report, for example because of `INFO: NOPERM`.
inline Finding not_told(const std::string& why) {
  return {Level::ok, "", "not told (" + why + ")", "", false};
}
inline Finding named(const char* check, Finding finding) {
  finding.check = check;
  return finding;
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
/// The reasons why a fact is missing: `INFO: NOPERM, CONFIG: unknown command`.
std::string refusals(const ServerFacts& facts);

/// The advice for a failure with this cause; `otherwise` if the cause has none.
std::string advice_on(Cause cause, const char* otherwise);
/// The same for a server that did not answer, or only with an error.
std::string advice_on_reach(Cause cause);

}  // namespace dlock
