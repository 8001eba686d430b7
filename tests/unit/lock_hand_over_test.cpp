#include <doctest/doctest.h>

#include "lock/grant.hpp"

using namespace dlock;

TEST_CASE("a hand-over that was read late leaves no time to start a command unasked") {
  constexpr milliseconds lease{6000};
  constexpr milliseconds waited{2000};
  // By the place's clock the message was sent 1.2 s after the answer, and it is read 0.8 s later.
  const DatedAnswer answer{BootClock::now() - waited, microseconds(0)};
  const HandOver told{milliseconds(1200), lease, Fence{7}};
  const auto grant = handed_over_grant(answer, told, milliseconds(0));
  REQUIRE(grant);
  CHECK(grant->fence == Fence{7});
  CHECK(!grant->confirmed);
  CHECK(grant->lease.valid_until <= later(BootClock::now(), lease / 3));
}
