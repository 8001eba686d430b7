#pragma once

#include <vector>

#include "lock/store.hpp"
#include "support/exchanges.hpp"
#include "support/sockets.hpp"

namespace dlock::test {

/// Locks on the majority of the servers at these addresses, with the prefix of the shipped
/// defaults; `exchanges` counts what that takes, and outlives them.
StorePtr counted_majority(const std::vector<Address>& servers, Exchanges& exchanges);

}  // namespace dlock::test
