// How often a waiter asks while nothing happens, how it ends without an answer, and how long a
// hand-over counts.

#include "lock/acquire.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "lock/store.hpp"
#include "support/idle_store.hpp"
#include "support/silent_listener.hpp"
#include "unit/error_of.hpp"

namespace dlock::test {
namespace {

/// A key whose holder renews a lease of 30 s every ten seconds, for ever. It counts the requests of
/// a waiter, on a clock that moves when it sleeps.
class HeldForEver : public IdleStore {
 public:
  HeldForEver(std::size_t ahead, std::optional<milliseconds> near_head)
      : ahead_(ahead), near_head_(near_head) {}

  Answer acquire(const Claim&, const Ask& ask, const CallOptions&) override {
    ++asked_;
    Refusal refusal;
    refusal.why = Refusal::Reason::held;
    refusal.ahead = ahead_;
    refusal.waiting = ahead_ + 1;
    refusal.ticket = ask.ticket.value_or(Ticket{1});
    refusal.ask_again_in = milliseconds(30'000) - passed_ % milliseconds(10'000);
    if (near_head_) refusal.longest_sleep_near_head = *near_head_;
    return refusal;
  }
  Wake sleep(const Claim&, Deadline until, int) override {
    passed_ += std::chrono::ceil<milliseconds>(until - BootClock::now());
    if (passed_ >= hour) done_.raise();
    return Wake{};
  }

  double requests_a_second() const {
    return asked_ / std::chrono::duration<double>(passed_).count();
  }
  int done_fd() const { return done_.fd(); }

 private:
  static constexpr milliseconds hour{3'600'000};
  std::size_t ahead_;
  std::optional<milliseconds> near_head_;
  int asked_ = 0;
  milliseconds passed_{0};
  Event done_;
};

double waiter_rate(std::size_t ahead, std::optional<milliseconds> near_head = {}) {
  HeldForEver store(ahead, near_head);
  Claim claim;
  claim.key = LockKey{"k"};
  AcquireOptions terms;
  terms.cancel_fd = store.done_fd();
  SilentListener silent;
  CHECK(std::holds_alternative<Interrupted>(acquire(store, {claim}, terms, silent)));
  return store.requests_a_second();
}

TEST_CASE("a waiter asks every 25 s at most, and near the head as often as its store needs") {
  constexpr double idle = 0.05;
  CHECK(waiter_rate(100) < idle);
  CHECK(waiter_rate(0) > 0.19);
  CHECK(waiter_rate(0) < 0.21);
  CHECK(waiter_rate(0, milliseconds::max()) < idle);
  CHECK(waiter_rate(2, milliseconds::max()) < idle);
  CHECK(waiter_rate(0, milliseconds(1000)) > 0.9);
}

/// Counts the requests before the first sleep, which is interrupted.
class CountedUntilSleep final : public HeldForEver {
 public:
  explicit CountedUntilSleep(bool twice) : HeldForEver(0, {}), twice_(twice) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override {
    ++requests;
    return HeldForEver::acquire(claim, ask, call_options);
  }
  bool waiter_asks_again() const override { return twice_; }
  Wake sleep(const Claim&, Deadline, int) override { throw_interrupted(); }

  int requests = 0;

 private:
  bool twice_;
};

TEST_CASE("a waiter sleeps after one request, or after two if its store is to listen first") {
  for (const bool twice : {false, true}) {
    CountedUntilSleep store(twice);
    Claim claim;
    claim.key = LockKey{"k"};
    SilentListener silent;
    CHECK(std::holds_alternative<Interrupted>(acquire(store, {claim}, {}, silent)));
    CHECK(store.requests == (twice ? 2 : 1));
  }
}

/// Grants each key once, except for the last, for which it is silent until the wait is over.
class SilentForTheLast final : public HeldForEver {
 public:
  explicit SilentForTheLast(milliseconds silence) : HeldForEver(0, {}), silence_(silence) {}

  Answer acquire(const Claim& claim, const Ask&, const CallOptions&) override {
    if (claim.key.text != "last") return Grant{};
    sleep_until(later(BootClock::now(), silence_), -1);
    throw Error(ErrorKind::unavailable, "no answer");
  }
  ReleaseResult release(const Claim& claim, const ReleaseOptions&, const CallOptions&) override {
    released.push_back(claim.key.text);
    return {Released::yes};
  }

  std::vector<std::string> released;

 private:
  milliseconds silence_;
};

TEST_CASE("a wait that ends before the first answer for a later key is no refusal by a holder") {
  constexpr milliseconds wait{500};
  SilentForTheLast store(2 * wait);
  std::vector<Claim> claims(2);
  claims[0].key = LockKey{"first"};
  claims[1].key = LockKey{"last"};
  AcquireOptions terms;
  terms.wait = wait;
  SilentListener silent;
  CHECK(error_kind_of([&] { acquire(store, claims, terms, silent); }) == ErrorKind::unavailable);
  CHECK(store.released == std::vector<std::string>{"first", "last"});
}

/// Grants each key at once, except for the last, which it hands over by an unconfirmed message.
class HandsOverTheLast final : public HeldForEver {
 public:
  HandsOverTheLast() : HeldForEver(0, {}) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override {
    if (claim.key.text != "last") return grant(true);
    return HeldForEver::acquire(claim, ask, call_options);
  }
  Wake sleep(const Claim&, Deadline, int) override {
    return {Wake::Reason::granted, {}, grant(false)};
  }
  Renewed renew(const Claim& claim, const RenewalOptions&, const CallOptions&) override {
    renewed.push_back(claim.key.text);
    return {grant(true), {}};
  }

  std::vector<std::string> renewed;

 private:
  static Grant grant(bool confirmed) {
    Grant grant{Fence{1}, {milliseconds(30'000), later(BootClock::now(), milliseconds(30'000))}};
    grant.confirmed = confirmed;
    return grant;
  }
};

/// The keys that acquire() renews before it returns with these keys.
std::vector<std::string> renewed_before(const std::vector<std::string>& keys) {
  HandsOverTheLast store;
  std::vector<Claim> claims(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    claims[i].key = LockKey{keys[i]};
    claims[i].ttl = milliseconds(30'000);
  }
  AcquireOptions terms;
  terms.unconfirmed = true;
  terms.open_second = [] { return std::make_unique<HandsOverTheLast>(); };
  SilentListener silent;
  const auto acquired = acquire(store, claims, terms, silent);
  const auto* held = std::get_if<std::vector<Held>>(&acquired);
  REQUIRE(held != nullptr);
  CHECK(held->size() == keys.size());
  return store.renewed;
}

TEST_CASE("a key that is handed over is confirmed before the keys had earlier are renewed") {
  CHECK(renewed_before({"first", "last"}) == std::vector<std::string>{"last", "first"});
  // A single key costs no further request.
  CHECK(renewed_before({"last"}).empty());
}

TEST_CASE("a hand-over that was read late leaves no time to start a command unasked") {
  constexpr milliseconds lease{6000};
  constexpr milliseconds waited{2000};
  // The message was sent 1.2 s after the answer by the server's clock; it is read 0.8 s later.
  const DatedAnswer answer{BootClock::now() - waited, microseconds(0)};
  const HandOver told{milliseconds(1200), lease, Fence{7}};
  const auto grant = handed_over_grant(answer, told, milliseconds(0));
  REQUIRE(grant);
  CHECK(grant->fence == Fence{7});
  CHECK(!grant->confirmed);
  CHECK(grant->lease.valid_until <= later(BootClock::now(), lease / 3));
}

}  // namespace
}  // namespace dlock::test
