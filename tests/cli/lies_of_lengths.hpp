#pragma once

#include <vector>

#include "support/lying_relay.hpp"

// Lies about lengths and counts, which do not match the data that follow.

namespace dlock::test {

/// One more and one less than what follows, none, a negative and a gigantic one.
void add_lies_of_lengths(std::vector<Lie>& all);

}  // namespace dlock::test
