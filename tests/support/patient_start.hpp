#pragma once

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"

namespace dlock::test {

/// The run that `start()` starts, once `begun()` has come true. On a busy machine a first request
/// may take longer than a short lease leaves it: a run that has found no server is started anew.
/// Error with what the run wrote where it ended otherwise, or took longer than 30 s.
template <typename Start, typename Begun>
Process patient_start(Start start, Begun begun) {
  constexpr int without_server = 69;
  constexpr int most_tries = 5;
  for (int tries = 1;; ++tries) {
    Process process = start();
    eventually([&] { return begun() || !process.running(); });
    if (begun()) return process;
    const bool again =
        !process.running() && process.wait().exit_code == without_server && tries < most_tries;
    if (!again) throw Error(ErrorKind::bug, "the command did not begin: " + process.err());
  }
}

}  // namespace dlock::test
