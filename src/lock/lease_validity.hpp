#pragma once

#include "base/clock.hpp"

namespace dlock {

/// How long a hold is valid. `valid_until` counts from before the request was sent, less the drift
/// allowance: after it, another client may hold the key. It is `never` for a hold without a lease.
struct Lease {
  milliseconds length{0};
  Deadline valid_until = never;
};

/// The accepted range of leases and times in a server's reply, so that sums and differences of them
/// do not overflow, in nanoseconds as well. A clock that counts since 1970 reaches `latest_time` in
/// 2255; `earliest_time` allows for a lease that had expired when its clock began.
constexpr milliseconds longest_span{1'000'000'000'000};
constexpr microseconds earliest_time = -std::chrono::hours(24 * 366);
constexpr microseconds latest_time{(1LL << 53) - 1};

/// The part of a lease that may be lost to clocks of different rates and to rounding: 1 % + 2 ms,
/// as on the Redlock page
/// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/).
milliseconds drift_allowance(milliseconds lease);

/// The local deadline of a lease that was granted for a request sent at `sent`.
Deadline valid_until(Deadline sent, milliseconds lease);

/// The grace of `acquire --attach`: how long a script has to stop before its lease may expire.
milliseconds usual_grace(milliseconds ttl);

}  // namespace dlock
