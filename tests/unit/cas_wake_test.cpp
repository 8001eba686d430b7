// Messages to a waiter of a compare-and-set engine, and how far it trusts them.

#include <doctest/doctest.h>

#include "cas/record.hpp"
#include "unit/cas_support.hpp"

namespace dlock::test {
namespace {

constexpr const char* clock_of_the_place = "86400000000";

std::string grant_for(const Claim& claim, const std::string& rest) {
  return "grant " + short_name(claim.token.text) + " " + rest;
}

/// Queues number 1 for the lock of number 0.
Claim waiter_behind_another(CasStore& store) {
  CHECK(std::holds_alternative<Grant>(store.acquire(claim_number(0), {}, in_a_minute())));
  const Claim waiter = claim_number(1);
  CHECK(std::holds_alternative<Refusal>(store.acquire(waiter, {true, {}}, in_a_minute())));
  return waiter;
}

Wake slept(CasStore& store, const Claim& claim) {
  return store.sleep(claim, later(BootClock::now(), milliseconds(60'000)), -1);
}

}  // namespace

TEST_CASE("cas: a message that is not whole, or meant for another, grants a waiter nothing") {
  SmallPlace place;
  CasStore store = client_of(place);
  const Claim waiter = waiter_behind_another(store);
  const std::string clock = clock_of_the_place;
  const std::string next = "next " + short_name(waiter.token.text);
  place.messages = {"",
                    "grant",
                    "grant ",
                    grant_for(claim_number(2), clock + " 60000 7"),
                    grant_for(waiter, ""),
                    grant_for(waiter, clock),
                    grant_for(waiter, clock + " 60000"),
                    grant_for(waiter, clock + " 60000 7 8"),
                    grant_for(waiter, "x 60000 7"),
                    grant_for(waiter, clock + " -1 7"),
                    grant_for(waiter, clock + " 60000 -7"),
                    grant_for(waiter, clock + " 60000 99999999999999999999"),
                    "take " + short_name(waiter.token.text) + " " + clock + " 60000 7",
                    next,
                    next + " x",
                    next + " 5 6"};
  CHECK(slept(store, waiter).why == Wake::Reason::interrupted);
  CHECK(place.messages.empty());
}

TEST_CASE("cas: a message dates the grant it tells of, or a renewal has to confirm it") {
  SmallPlace place;
  CasStore store = client_of(place);
  const Claim waiter = waiter_behind_another(store);
  const std::string clock = clock_of_the_place;
  place.messages = {grant_for(waiter, clock + " 60000 7")};
  const Wake told = slept(store, waiter);
  CHECK(told.why == Wake::Reason::granted);
  REQUIRE(told.grant);
  CHECK(told.grant->fence == Fence{7});
  CHECK_FALSE(told.grant->confirmed);
  CHECK(told.grant->lease.valid_until < later(BootClock::now(), milliseconds(60'000)));
  // One message from before the waiter's request, and one from the future: a clock was set.
  for (const char* odd : {"86399999999", "90000000000"}) {
    place.messages = {grant_for(waiter, std::string(odd) + " 60000 7")};
    const Wake doubtful = slept(store, waiter);
    CHECK(doubtful.why == Wake::Reason::granted);
    CHECK_FALSE(doubtful.grant);
  }
}

TEST_CASE("cas: a waiter that looks late at the lock it was handed has to confirm it") {
  SmallPlace place;
  place.sends_messages = false;
  CasStore holder = client_of(place);
  CasStore store = client_of(place);
  const Claim waiter = waiter_behind_another(store);
  CHECK(holder.release(claim_number(0), {}, in_a_minute()).outcome == Released::yes);
  place.clock += milliseconds(4000);  // of the six seconds of a hand-over
  const Wake late = slept(store, waiter);
  CHECK(late.why == Wake::Reason::granted);
  CHECK_FALSE(late.grant);
  CHECK(store.renew(waiter, {}, in_a_minute()).grant);
}

TEST_CASE("cas: a waiter whose place was removed asks again at once, and holds nothing") {
  SmallPlace place;
  place.sends_messages = false;
  CasStore store = client_of(place);
  const Claim waiter = waiter_behind_another(store);
  place.text.clear();
  const Wake wake = slept(store, waiter);
  CHECK(wake.why == Wake::Reason::due);
  CHECK_FALSE(wake.grant);
  CHECK_FALSE(store.renew(waiter, {}, in_a_minute()).grant);
}

}  // namespace dlock::test
