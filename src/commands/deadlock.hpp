#pragma once

#include <string>

#include "lock/grant.hpp"

namespace dlock {

/// The end of the sentence about a refusal, where a holder is a process that started this one (a
/// script after `acquire`, a `run` around us whose DLOCK_OWNER was lost): it may never release
/// while it waits for us. Empty if none is.
std::string deadlock_text(const Refusal& refusal);

}  // namespace dlock
