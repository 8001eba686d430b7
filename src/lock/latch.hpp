#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "lock/claim.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The client that arrives, counted once however often it says so: letters, digits and `._:@-`, as
/// an owner's name.
struct ArrivalId {
  std::string text;
  auto operator<=>(const ArrivalId&) const = default;
};

/// An ID that nobody else has.
ArrivalId new_arrival_id();

constexpr std::int64_t largest_latch = 1'000'000;

/// The terms on which a latch is opened.
struct LatchTerms {
  std::int64_t count = 0;
  milliseconds ttl{0};
};

/// A place where count-down latches live, apart from the locks of the same keys: what every engine
/// answers. One thread at a time. All requests may be repeated, and are, where an answer is lost.
class Latches {
 public:
  virtual ~Latches() = default;

  /// Makes the latch. One that is there stays as it is, but for its end, which this may put off;
  /// the answer tells its count.
  virtual LatchState open_latch(const LockKey& key, const LatchTerms& terms,
                                const CallOptions& call_options) = 0;

  /// Nothing if there is no such latch. A latch that is open stays as it is.
  virtual std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                           const CallOptions& call_options) = 0;

  /// Nothing if there is no such latch. With `listen`, sleep_at_latch() hears from here on of
  /// whatever may open it.
  virtual std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                                  const CallOptions& call_options) = 0;

  /// After a look that listens: sleeps until `until`, or until there is reason to look again
  /// (changed). Throws Error{unavailable} if the news channel broke: look again.
  virtual Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) = 0;
};

}  // namespace dlock
