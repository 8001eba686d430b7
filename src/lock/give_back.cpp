#include "base/error.hpp"
#include "base/wait.hpp"
#include "lock/acquire.hpp"

namespace dlock {

bool give_back(Store& store, const std::vector<Held>& held, milliseconds at_most) {
  constexpr milliseconds pause_before_second{50};
  bool answered = true;
  const auto begun = BootClock::now();
  const auto end = later(begun, at_most);
  // What is left of the time is for a second try, on another connection than one that has died.
  auto answer_by = begun + (end - begun) / 2;
  for (const Held& each : held) {
    const ReleaseOptions how{ReleaseMode::ignore_floor, each.renewed_elsewhere};
    while (true) {
      try {
        store.release(each.claim, how, {answer_by, -1});
        break;
      } catch (const Error& error) {
        answer_by = end;
        const auto again = later(BootClock::now(), pause_before_second);
        if (error.trouble() != ErrorKind::unavailable || again >= end) {
          answered = false;
          break;
        }
        poll_until({}, again);
      }
    }
  }
  return answered;
}

}  // namespace dlock
