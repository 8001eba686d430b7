// Releasing several locks on an engine that is far away, or that stalled for a moment.

#include "lock/release.hpp"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "support/eventually.hpp"
#include "support/idle_store.hpp"

namespace dlock::test {
namespace {

/// Takes `time_to_answer` for a release, and ignores one without any time left.
class FarStore final : public IdleStore {
 public:
  explicit FarStore(milliseconds time_to_answer) : time_to_answer_(time_to_answer) {}

  ReleaseResult release(const Claim& claim, const ReleaseOptions&,
                        const CallOptions& call_options) override {
    if (left_until(call_options.deadline) == milliseconds(0)) throw silent();
    times_left.push_back(left_until(call_options.deadline));
    if (times_left.size() <= overtaken) {
      sleep_until(call_options.deadline, -1);
      throw Error(ErrorKind::unavailable, "others were faster", Cause::busy);
    }
    if (times_left.size() <= swallowed) throw silent();
    released.insert(claim.key);
    const auto answered = later(std::max(BootClock::now(), still_until), time_to_answer_);
    sleep_until(std::min(answered, call_options.deadline), -1);
    if (answered > call_options.deadline) throw silent();
    return {Released::yes};
  }

  std::set<LockKey> released;
  std::vector<milliseconds> times_left;  ///< of each request, when it came
  std::size_t swallowed = 0;             ///< so many requests fail at once without an answer
  std::size_t overtaken = 0;             ///< so many requests lose to faster clients until the end
  Deadline still_until{};

 private:
  static Error silent() { return {ErrorKind::unavailable, "no answer in time"}; }

  milliseconds time_to_answer_;
};

std::vector<Held> nine_holds() {
  std::vector<Held> held(9);
  for (std::size_t i = 0; i < held.size(); ++i) held[i].claim.key.text = "k" + std::to_string(i);
  return held;
}

}  // namespace

// A machine that stalls in one of these tests uses up the time of a release, but not in every try.

TEST_CASE("release_all: a far engine hears of every lock, however many there are") {
  CHECK(in_one_of(3, [] {
    FarStore store(milliseconds(100));
    return release_all(store, nine_holds(), milliseconds(500)) && store.released.size() == 9;
  }));
}

TEST_CASE("release_all: an engine that stood still for a moment hears of every lock") {
  CHECK(in_one_of(3, [] {
    FarStore store(milliseconds(1));
    store.still_until = later(BootClock::now(), milliseconds(700));
    CHECK_FALSE(release_all(store, nine_holds(), milliseconds(500)));
    return store.released.size() == 9;
  }));
}

TEST_CASE(
    "release_all: an engine that never answers is waited for twice as long, not once a lock") {
  CHECK(in_one_of(3, [] {
    FarStore store(milliseconds(60'000));
    const auto begun = BootClock::now();
    CHECK_FALSE(release_all(store, nine_holds(), milliseconds(500)));
    return BootClock::now() - begun < milliseconds(4000);
  }));
}

TEST_CASE("release: a first request that may go to a dead connection gets a second at most") {
  FarStore store(milliseconds(0));
  store.swallowed = 1;
  CHECK(release_all(store, {nine_holds().front()}, milliseconds(30'000)));
  REQUIRE(store.times_left.size() == 2);
  CHECK(store.times_left[0] <= milliseconds(1000));
  CHECK(store.times_left[1] > milliseconds(1000));
}

TEST_CASE("release: while others are faster it goes on for as long as the lease lasts") {
  FarStore store(milliseconds(0));
  store.overtaken = 2;
  Held held;
  held.grant.fence = Fence{1};
  held.grant.lease = {milliseconds(60'000), later(BootClock::now(), milliseconds(60'000))};
  const auto until = later(BootClock::now(), milliseconds(200));
  const auto end = release_until_answered(store, held, {ReleaseMode::ignore_floor}, until);
  CHECK(std::holds_alternative<ReleaseResult>(end));
  CHECK(store.released.size() == 1);
}

}  // namespace dlock::test
