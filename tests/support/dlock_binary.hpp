#pragma once

#include <string>
#include <vector>

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

}  // namespace dlock::test
