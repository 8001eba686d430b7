#pragma once

#include <vector>

#include "support/lying_relay.hpp"

namespace dlock::test {

/// What a server that speaks RESP says in place of a reply, from a wrong type to what would be
/// right in another place. `other_server` is where redirects lead.
std::vector<Lie> resp_lies(const Address& other_server);

/// The same for a protocol that the test does not read: rubbish, and what can be done to a reply
/// without understanding it.
std::vector<Lie> blind_lies(const Address& other_server);

/// What a ZooKeeper says in place of a reply that is valid, or nearly so, in its protocol.
std::vector<Lie> zookeeper_lies();

}  // namespace dlock::test
