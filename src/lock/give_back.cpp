#include "base/error.hpp"
#include "base/wait.hpp"
#include "lock/acquire.hpp"

namespace dlock {

bool give_back(Store& store, const std::vector<Claim>& claims, const CallOptions& call_options) {
  constexpr milliseconds pause_before_second{50};
  bool answered = true;
  const auto begun = BootClock::now();
  // What is left of the time is for a second try, on another connection than one that has died.
  auto answer_by = begun + (call_options.deadline - begun) / 2;
  for (const Claim& claim : claims) {
    while (true) {
      try {
        store.release(claim.key, claim.token, ReleaseMode::ignore_floor,
                      {answer_by, call_options.cancel_fd});
        break;
      } catch (const Error& error) {
        answer_by = call_options.deadline;
        const auto again = later(BootClock::now(), pause_before_second);
        if (error.trouble() != ErrorKind::unavailable || again >= call_options.deadline) {
          answered = false;
          break;
        }
        poll_until({}, again);
      }
    }
  }
  return answered;
}

bool give_back(Store& store, const std::vector<Held>& held, milliseconds at_most) {
  std::vector<Claim> claims;
  for (const Held& each : held) claims.push_back(each.claim);
  return give_back(store, claims, {later(BootClock::now(), at_most), -1});
}

}  // namespace dlock
