#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/one_of_tries.hpp"

// Shared helpers for tests of host names. The names shim (tests/shim) defines the meaning of
// `ANYTHING.N.test`.

namespace dlock::test {

/// The environment with a resolver that knows the test names.
inline ProcessOptions at_test_names(const std::string& url) {
  ProcessOptions options = at(url);
  options.env["LD_PRELOAD"] = DLOCK_NAMES_SHIM;
  return options;
}

/// Checks that dlock gave up in time although its resolver takes 100 s.
inline void check_given_up(const Result& result) {
  CHECK(result.exit_code == 69);
  CHECK(is_one_message(result.err));
  CHECK(holds(result.err, "took too long"));
  CHECK(result.duration < milliseconds(15'000));
}

/// Checks that of several hosts an unknown one is passed over. `lock_at` acquires a lock at the
/// hosts of a server with this `port` (`:2379`).
inline void check_names_passed_over(const std::function<Result(const std::string&)>& lock_at,
                                    const std::string& port) {
  const std::string there = "db.1.test" + port;
  for (const std::string& hosts :
       {there, "gone.1.none.test" + port + "," + there, "silent.100000.test" + port + "," + there,
        there + ",gone.1.none.test" + port}) {
    CAPTURE(hosts);
    CHECK(once_served([&] { return lock_at(hosts); }).exit_code == 0);
  }
  const auto unknown = lock_at("gone.1.none.test" + port);
  CHECK(unknown.exit_code == 69);
  CHECK(is_one_message(unknown.err));
  CHECK(holds(unknown.err, "cannot look up gone.1.none.test"));
}

}  // namespace dlock::test
