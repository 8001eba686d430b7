#pragma once

#include <vector>

#include "support/lying_relay.hpp"

namespace dlock::test {

/// The lies of a RESP server, from a wrong type to a reply that would be right elsewhere. Redirects
/// lead to `other_server`.
std::vector<Lie> resp_lies(const Address& other_server);

/// The lies for a protocol that the test does not parse: garbage, and changes that need no parser.
std::vector<Lie> blind_lies(const Address& other_server);

/// The lies of a ZooKeeper that are valid in its protocol, or nearly so.
std::vector<Lie> zookeeper_lies();

}  // namespace dlock::test
