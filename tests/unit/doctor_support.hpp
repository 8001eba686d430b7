#pragma once

#include <doctest/doctest.h>

#include <string>

#include "doctor/checks.hpp"

namespace dlock {

/// The finding of this check. Each finding that is not ok has an advice.
inline Finding finding_of(const Findings& findings, const std::string& check) {
  for (const Finding& each : findings) {
    CHECK((each.level == Level::ok) == each.advice.empty());
    if (each.check == check) return each;
  }
  return {Level::ok, "", "no such check", ""};
}

/// Whether the finding has this level, and this part in its text or advice.
inline bool is(const Finding& finding, Level level, const std::string& part) {
  CAPTURE(finding.text);
  CAPTURE(finding.advice);
  const bool as_expected = finding.level == level &&
                           (finding.text + " -> " + finding.advice).find(part) != std::string::npos;
  CHECK(as_expected);
  return as_expected;
}

}  // namespace dlock
