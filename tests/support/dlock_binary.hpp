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

}  // namespace dlock::test
