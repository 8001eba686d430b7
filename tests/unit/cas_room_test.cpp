#include <doctest/doctest.h>

#include "base/error.hpp"
#include "unit/cas_support.hpp"

namespace dlock::test {
namespace {

/// Queues clients until one is refused; returns its number.
int fill(CasStore& store) {
  for (int number = 1;; ++number) {
    try {
      store.acquire(claim_number(number), {true, {}}, in_a_minute());
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::unavailable);
      CHECK(std::string(error.what()).starts_with("small://place: too many clients hold k"));
      return number;
    }
  }
}

}  // namespace

TEST_CASE("a record with too many waiters refuses another one, and neither holder nor waiters") {
  SmallPlace place;
  CasStore store = client_of(place);
  Claim held = claim_number(0);
  REQUIRE(std::holds_alternative<Grant>(store.acquire(held, {}, in_a_minute())));
  const int refused = fill(store);
  CHECK(refused > 4);
  CHECK(place.text.size() <= place.largest / 2);
  // Before this, the record had neither the command's pid nor the connection.
  held.who.command_pid = 4'194'303;
  CHECK(store.renew(held, {}, in_a_minute()).grant);
  const Answer again = store.acquire(claim_number(1), {true, {}}, in_a_minute());
  REQUIRE(std::holds_alternative<Refusal>(again));
  CHECK(std::get<Refusal>(again).why == Refusal::Reason::held);
  CHECK(store.release(held, {}, in_a_minute()).outcome == Released::yes);
  CHECK(store.renew(claim_number(1), {}, in_a_minute()).grant);
  for (const int number : {2, 3}) {
    const auto left = store.release(claim_number(number), {}, in_a_minute());
    CHECK(left.outcome == Released::left_queue);
  }
  CHECK(std::holds_alternative<Refusal>(
      store.acquire(claim_number(refused), {true, {}}, in_a_minute())));
}

TEST_CASE("a holder enters again although its record has no room for another waiter") {
  SmallPlace place;
  CasStore store = client_of(place);
  const Claim held = claim_number(0);
  REQUIRE(std::holds_alternative<Grant>(store.acquire(held, {}, in_a_minute())));
  fill(store);
  Claim inner = held;
  inner.token.text = "token-inner";
  CHECK(std::holds_alternative<Grant>(store.acquire(inner, {}, in_a_minute())));
}

}  // namespace dlock::test
