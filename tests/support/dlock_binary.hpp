#pragma once

#include <string>
#include <vector>

#include "support/process.hpp"

namespace dlock::test {

/// `options` for an environment in which no setting of this machine or user reaches dlock: without
/// every DLOCK_ variable and REDISCLI_AUTH, with an empty HOME. What `options.env` sets stays. The
/// default lock directory is outside of it (the user database names it): tests of the local engine
/// give their own `local:/dir`.
ProcessOptions clean(ProcessOptions options);

/// The dlock under test with these arguments, in a clean environment.
Process start_dlock(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
Result dlock(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

/// Its path, for scripts that call it themselves.
std::string dlock_path();

}  // namespace dlock::test
