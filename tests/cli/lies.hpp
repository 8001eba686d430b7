#pragma once

#include <vector>

#include "support/lying_relay.hpp"

namespace dlock::test {

/// What a server that speaks RESP says in place of a reply, from a wrong type to what would be
/// right in another place. `other_server` is where redirects lead.
std::vector<Lie> resp_lies(const Address& other_server);

}  // namespace dlock::test
