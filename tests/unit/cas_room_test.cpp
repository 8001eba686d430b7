#include <doctest/doctest.h>

#include "base/error.hpp"
#include "cas/cas_store.hpp"
#include "unit/rule_support.hpp"

namespace dlock::test {
namespace {

/// One record in memory, and the most bytes that it may have.
struct SmallPlace {
  std::string text;
  Version version = 0;
  std::size_t largest = 8000;
};

/// A client of it, whose connection lives.
class SmallBackend final : public CasBackend {
 public:
  explicit SmallBackend(SmallPlace& place) : place_(place) {}

  Snapshot read(const std::string&, const std::string&, const CallOptions&) override {
    Snapshot seen;
    seen.text = place_.text;
    seen.version = place_.version;
    seen.clock = std::chrono::hours(24);
    seen.sent = BootClock::now();
    seen.connection = 1;
    seen.alive = {connection_id()};
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
  std::string connection_id() const override { return "1"; }
  std::variant<std::string, Wake::Reason> next_message(const std::string&, Deadline, int) override {
    return Wake::Reason::due;
  }
  std::size_t largest_record() const override { return place_.largest; }
  void close() override {}
  std::string name() const override { return "small://place"; }

 private:
  SmallPlace& place_;
};

CasStore client_of(SmallPlace& place) { return {std::make_unique<SmallBackend>(place), "dlock:"}; }

Claim claim_number(int number) {
  Claim made = claim("token-" + std::to_string(number), "owner-" + std::to_string(number));
  made.key.text = "k";
  return made;
}

CallOptions in_a_minute() { return {later(BootClock::now(), milliseconds(60'000)), -1}; }

/// Lets clients wait until one is refused; that one.
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
  // It had not told its command before, nor its connection.
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
