#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"

namespace dlock::test {

/// `options` for an environment that hides the settings of this machine and user from dlock: no
/// DLOCK_ variable, no REDISCLI_AUTH, an empty HOME. Variables in `options.env` stay. The default
/// lock directory comes from the user database and is not replaced: tests of the local engine name
/// their own `local:/dir`.
ProcessOptions clean(ProcessOptions options);

/// The dlock under test with these arguments, in a clean environment.
Process start_dlock(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
Result dlock(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

/// The path of dlock, for scripts that call it themselves.
std::string dlock_path();

bool holds(const std::string& text, const std::string& part);

/// Whether `text` is one whole line that begins with "dlock: " and has no terminal sequences.
bool is_one_message(const std::string& text);

/// Checks that dlock ended with this code, printed nothing on stdout, and one message on stderr
/// that contains `part`. These checks name the line of their caller.
void check_message(const Result& result, int code, const std::string& part = "",
                   const char* file = __builtin_FILE(), int line = __builtin_LINE());
/// The same, however much else it printed.
void check_says(const Result& result, int code, const std::string& part,
                const char* file = __builtin_FILE(), int line = __builtin_LINE());
/// Checks that dlock ended with 0, and its command printed `out`.
void check_ran(const Result& result, const std::string& out, const char* file = __builtin_FILE(),
               int line = __builtin_LINE());
/// Checks that dlock ended with this code, and printed nothing on stderr.
void check_quiet(const Result& result, int code = 0, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE());

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
