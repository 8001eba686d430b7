#pragma once

#include <string>
#include <type_traits>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"

namespace dlock::test {

/// Starts a run with `start()` and returns it once `begun()`, which may take the run, is true. On a
/// busy machine the first request may take longer than a short lease: a run that found no server is
/// started again. Error with `failure` and the run's output if it ended otherwise or took longer
/// than 30 s.
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

/// Whether a command that says "in" first has begun.
inline bool says_in(const Process& process) { return process.out() == "in\n"; }

/// Whether a command that waits for a lock or at a latch has reported so. The server knows the
/// waiter earlier, but a waiter whose first request stays unanswered gives up.
inline bool says_that_it_waits(const Process& process) {
  return process.err().find("waiting: ") != std::string::npos;
}

}  // namespace dlock::test
