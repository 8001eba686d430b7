// The locks of `run` before its command starts.

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "commands/held_locks.hpp"
#include "support/idle_store.hpp"

namespace dlock::test {
namespace {

/// A server that is busy with other clients until `until`, and then renews.
class BusyStore final : public IdleStore {
 public:
  explicit BusyStore(Deadline until) : until_(until) {}

  Renewed renew(const Claim&, const RenewalOptions&, const CallOptions&) override {
    ++renewals;
    const Deadline now = BootClock::now();
    if (now < until_) throw Error(ErrorKind::unavailable, "busy", Cause::busy);
    return {Grant{Fence{1}, Lease{milliseconds(60'000), later(now, milliseconds(60'000))}}};
  }

  int renewals = 0;

 private:
  Deadline until_;
};

TEST_CASE("held locks: a busy server is asked to renew again, but not without pauses") {
  constexpr milliseconds busy{300}, least_pause{20};
  const auto begun = BootClock::now();
  BusyStore store(later(begun, busy));
  Claim claim;
  claim.key = LockKey{"k"};
  claim.ttl = milliseconds(60'000);
  const Lease used_up{claim.ttl, later(begun, milliseconds(15'000))};
  const Log log(true, false);
  HeldLocks held(store, {{claim, Grant{Fence{1}, used_up}}}, log);
  CHECK(held.ready_to_start(milliseconds(5000)));
  CHECK(store.renewals > 1);
  CHECK(store.renewals <= 1 + (BootClock::now() - begun) / least_pause);
}

}  // namespace
}  // namespace dlock::test
