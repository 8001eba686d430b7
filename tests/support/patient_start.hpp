#pragma once

#include <string>
#include <type_traits>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"

namespace dlock::test {

/// The run that `start()` starts, once `begun()`, which may take the run, has come true. On a busy
/// machine a first request may take longer than a short lease leaves it: a run that has found no
/// server is started anew. Error with `failure` and what the run wrote where it ended otherwise, or
/// took longer than 30 s.
template <typename Start, typename Begun>
Process patient_start(Start start, Begun begun, const std::string& failure) {
  constexpr int most_tries = 5;
  for (int tries = 1;; ++tries) {
    Process process = start();
    const auto is_begun = [&] {
      if constexpr (std::is_invocable_v<Begun, const Process&>) {
        return begun(process);
      } else {
        return begun();
      }
    };
    bool has_begun = false;
    eventually([&] { return (has_begun = is_begun()) || !process.running(); });
    if (has_begun || is_begun()) return process;
    const bool found_no_server =
        !process.running() && process.wait().exit_code == static_cast<int>(ErrorKind::unavailable);
    if (!found_no_server || tries == most_tries) {
      throw Error(ErrorKind::bug, failure + ": " + process.err());
    }
  }
}

/// Of a command that says "in" first: whether it has begun.
inline bool says_in(const Process& process) { return process.out() == "in\n"; }

/// Of a command that waits, for a lock or at a latch: whether it has the answer that says so. The
/// server knows of the waiter before, and a waiter whose first request stays unanswered gives up.
inline bool says_that_it_waits(const Process& process) {
  return process.err().find("waiting: ") != std::string::npos;
}

}  // namespace dlock::test
