#pragma once

#include <vector>

#include "lock/store.hpp"
#include "support/exchanges.hpp"
#include "support/sockets.hpp"

namespace dlock::test {

/// A QuorumStore over the servers at these addresses, with the default prefix. `exchanges` counts
/// its round trips and must outlive it.
StorePtr counted_majority(const std::vector<Address>& servers, Exchanges& exchanges);

}  // namespace dlock::test
