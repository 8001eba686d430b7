// The store of the compare-and-set engines: how much room a record has, the messages to a waiter,
// and how far it trusts them.

#include "cas/cas_store.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <variant>

#include "base/error.hpp"
#include "cas/open_record.hpp"
#include "unit/rule_support.hpp"

namespace dlock::test {
namespace {

/// One record in memory, and the behaviour of its server.
struct SmallPlace {
  std::string text;
  Version version = 0;
  std::size_t largest = 8000;  ///< the maximum size of the record in bytes
  microseconds clock = std::chrono::hours(24);
  bool sends_messages = true;  ///< delivers `messages` to any listener
  std::deque<std::string> messages;
};

/// A client with a live connection.
class SmallBackend final : public CasBackend {
 public:
  explicit SmallBackend(SmallPlace& place) : place_(place) {}

  Snapshot read(const std::string&, OwnLife* own, const CallOptions&) override {
    if (own != nullptr) own->address = "channel.1";
    Snapshot seen;
    seen.text = place_.text;
    seen.version = place_.version;
    seen.clock = place_.clock;
    seen.sent = BootClock::now();
    seen.lives = Lives{Lives::Of::connections, {{"1", 0}}};
    return seen;
  }
  std::variant<Version, Snapshot> write(const std::string&, const Snapshot&, const Update& update,
                                        const CallOptions&) override {
    if (update.text.size() > place_.largest) throw_unavailable("too large for the place");
    place_.text = update.text;
    return ++place_.version;
  }
  RecordPage list(const std::string&, const std::string&, const CallOptions&) override {
    return {};
  }
  std::int64_t count(const std::string&, const CallOptions&) override { return 0; }
  void sweep(const std::string&, const std::string&, const CallOptions&) override {}
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override {
    if (!place_.sends_messages) {
      sleep_until(std::min(until, watch.poll), cancel_fd);
      return Wake::Reason::due;
    }
    // No message has woken the client.
    if (place_.messages.empty()) return Wake::Reason::interrupted;
    const std::string message = place_.messages.front();
    place_.messages.pop_front();
    return message;
  }
  std::size_t largest_record() const override { return place_.largest; }
  void close() override {}
  std::string name() const override { return "small://place"; }

 private:
  SmallPlace& place_;
};

CasStore client_of(SmallPlace& place) { return {std::make_unique<SmallBackend>(place), "dlock:"}; }

/// A claim on the key `k`.
Claim claim_number(int number) {
  Claim made = claim("token-" + std::to_string(number), "owner-" + std::to_string(number));
  made.key.text = "k";
  return made;
}

CallOptions in_a_minute() { return {later(BootClock::now(), milliseconds(60'000)), -1}; }

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
