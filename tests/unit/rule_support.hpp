#pragma once

#include <cstdint>
#include <string>

#include "lock/claim.hpp"

namespace dlock::test {

/// A claim for tests of the rules, with a ttl of ten seconds.
inline Claim claim(const std::string& token, const std::string& owner, std::int64_t limit = 1) {
  Claim claim;
  claim.token.text = token;
  claim.owner.text = owner;
  claim.limit.owners = limit;
  claim.ttl = milliseconds(10'000);
  return claim;
}

}  // namespace dlock::test
