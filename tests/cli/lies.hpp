#pragma once

#include <vector>

#include "support/lying_relay.hpp"

namespace dlock::test {

/// The lies of a RESP server, from a wrong type to a reply that would be right elsewhere. Redirects
/// lead to `other_server`.
std::vector<Lie> resp_lies(const Address& other_server);

}  // namespace dlock::test
