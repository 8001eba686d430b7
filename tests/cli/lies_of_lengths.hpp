#pragma once

#include <vector>

#include "support/lying_relay.hpp"

// Lies about lengths and counts: what they announce is not what follows.

namespace dlock::test {

/// One more and one less than what follows, none, a negative and a gigantic one.
void add_lies_of_lengths(std::vector<Lie>& all);

}  // namespace dlock::test
