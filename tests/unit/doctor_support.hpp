#pragma once

#include <doctest/doctest.h>

#include <string>

#include "doctor/checks.hpp"

namespace dlock::test {

/// The finding of a check; one without a name if there is none. Every finding but ok has advice.
inline Finding found(const Findings& findings, const std::string& check) {
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

}  // namespace dlock::test
