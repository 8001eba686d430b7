#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <mutex>

#include "attach/attached_holds.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "support/eventually.hpp"
#include "support/idle_store.hpp"

namespace dlock::test {
namespace {

/// A server whose answers the test decides; every claim has the ttl `ttl`.
class FakeStore final : public IdleStore {
 public:
  enum class Mode { renews, gone, silent };
  /// The leases last `lasts`, but are renewed as often as those of `ttl`.
  FakeStore(milliseconds lasts, milliseconds ttl) : lasts_(lasts), ttl_(ttl) {}

  void answer(const std::string& key, Mode mode) {
    const std::lock_guard guard(mutex_);
    modes_[key] = mode;
  }
  /// From now on a renewal does not return until let_go(), unless it is interrupted.
  void stop_in_renewal() { stopping_ = true; }
  bool is_in_renewal() const { return in_renewal_; }
  void let_go() { stopping_ = false; }
  /// From now on the holders are asked to stop.
  void ask_to_stop() { stop_asked_ = true; }
  int renewals() const { return renewals_; }

  Renewed renew(const Claim& claim, const RenewalOptions&,
                const CallOptions& call_options) override {
    const Deadline sent = BootClock::now();
    while (stopping_) {
      in_renewal_ = true;  // set only here, so that a renewal that passes does not count as stopped
      pause(milliseconds(1), {never, call_options.cancel_fd});
    }
    in_renewal_ = false;
    ++renewals_;
    const std::lock_guard guard(mutex_);
    const Mode mode = modes_[claim.key.text];
    if (mode == Mode::silent) throw Error(ErrorKind::unavailable, "no answer in time");
    if (mode == Mode::gone) return {};
    Renewed renewed{Grant{Fence{1}, Lease{ttl_, valid_until(sent, lasts_)}}};
    if (stop_asked_) renewed.stop_asked_by = Who{"ops1", 42, "root", "dlock", "stuck"};
    return renewed;
  }
  ReleaseResult release(const Claim& claim, const ReleaseOptions&, const CallOptions&) override {
    const std::lock_guard guard(mutex_);
    released_ += claim.key.text;
    return {Released::yes};
  }
  std::string released() const {
    const std::lock_guard guard(mutex_);
    return released_;
  }

 private:
  std::atomic<bool> stop_asked_ = false;
  milliseconds lasts_;
  milliseconds ttl_;
  mutable std::mutex mutex_;
  std::map<std::string, Mode> modes_;
  std::string released_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> in_renewal_ = false;
  std::atomic<int> renewals_ = 0;
};

constexpr milliseconds pace{100};
constexpr milliseconds long_lease{60'000};
constexpr milliseconds within{10'000};
const LockKey a{"a"};
const LockKey b{"b"};

/// Holds of a and b, which are renewed at once and after every third of `ttl`, and the results of
/// looking at them. The first leases are long; renewed ones last `lease`.
struct Kept {
  explicit Kept(milliseconds lease = long_lease, milliseconds ttl = 3 * pace)
      : store(lease, ttl), holds(store, granted(ttl)) {}

  static std::vector<Held> granted(milliseconds ttl) {
    std::vector<Held> held;
    for (const LockKey& key : {a, b}) {
      Claim claim;
      claim.key = key;
      claim.ttl = ttl;
      const auto end = valid_until(BootClock::now(), long_lease);
      held.push_back({claim, Grant{Fence{1}, Lease{ttl, end}}});
      held.back().clock_jump = std::chrono::nanoseconds(1);  // so that it is renewed at once
    }
    return held;
  }
  void answer(FakeStore::Mode mode) {
    store.answer("a", mode);
    store.answer("b", mode);
  }
  /// The key of the next lost hold.
  std::optional<std::string> next_loss(milliseconds at_most) {
    const Deadline end = later(BootClock::now(), at_most);
    while (BootClock::now() < end) {
      pollfd fds[] = {{holds.fd(), POLLIN, 0}};
      poll_until(fds, std::min(end, holds.look_by()));
      if (auto loss = holds.look()) return loss;
      if (holds.empty()) return std::nullopt;
    }
    return std::nullopt;
  }
  /// Waits until all holds have been renewed by new requests.
  bool renewed_again() {
    const int before = store.renewals();
    return eventually([&] { return store.renewals() > before + 2; });
  }

  FakeStore store;
  AttachedHolds holds;
};

constexpr milliseconds some_renewals = 5 * pace;

TEST_CASE("attached holds: one that is gone is a loss, told once, and the other is kept") {
  Kept kept;
  REQUIRE(kept.renewed_again());
  kept.store.answer("a", FakeStore::Mode::gone);
  CHECK(kept.next_loss(within) == "lost a: fake no longer has it");
  CHECK(!kept.next_loss(some_renewals));
  CHECK(!kept.holds.about_to_be_released(a));
  kept.holds.release(milliseconds(1000));
  CHECK(kept.store.released() == "b");
}

TEST_CASE("attached holds: a request to stop is told once, also after another lock is lost") {
  Kept kept;
  kept.store.ask_to_stop();
  std::optional<StopRequest> request;
  CHECK(eventually([&] { return (request = kept.holds.take_stop_request()).has_value(); }));
  REQUIRE(request.has_value());
  CHECK(request->by.label == "stuck");
  kept.store.answer("a", FakeStore::Mode::gone);
  const int before = kept.store.renewals();
  CHECK(kept.next_loss(within) == "lost a: fake no longer has it");
  // The other lock is renewed at once, and hears of the request again.
  REQUIRE(eventually([&] { return kept.store.renewals() > before + 1; }));
  CHECK(!kept.next_loss(some_renewals));
  CHECK(!kept.holds.take_stop_request());
}

TEST_CASE("attached holds: a renewal under way when a release is announced is interrupted") {
  Kept kept;
  REQUIRE(kept.renewed_again());
  kept.store.stop_in_renewal();
  REQUIRE(eventually([&] { return kept.store.is_in_renewal(); }));
  CHECK(kept.holds.about_to_be_released(a));
  kept.store.answer("a", FakeStore::Mode::gone);
  kept.store.let_go();
  CHECK(!kept.next_loss(some_renewals));
  kept.holds.released(a);
  CHECK(!kept.holds.empty());
  CHECK(kept.holds.about_to_be_released(b));
  kept.holds.released(b);
  CHECK(kept.holds.empty());
  CHECK(kept.holds.fd() == -1);
}

TEST_CASE("attached holds: a release that was refused leaves the lock kept") {
  Kept kept(milliseconds(3000), milliseconds(3000));
  REQUIRE(kept.renewed_again());
  CHECK(kept.holds.about_to_be_released(a));
  kept.holds.not_released(a);
  CHECK(kept.renewed_again());
  kept.store.answer("a", FakeStore::Mode::gone);
  CHECK(kept.next_loss(within) == "lost a: fake no longer has it");
}

TEST_CASE("attached holds: of two releases of one lock the one that was done counts") {
  Kept kept;
  REQUIRE(kept.renewed_again());
  CHECK(kept.holds.about_to_be_released(a));
  kept.store.answer("a", FakeStore::Mode::gone);
  kept.holds.not_released(a);
  kept.holds.released(a);
  CHECK(!kept.next_loss(some_renewals));
  CHECK(!kept.holds.about_to_be_released(a));
}

TEST_CASE("attached holds: a release that fails in an outage leaves the warning in force") {
  Kept kept(milliseconds(6000));
  REQUIRE(kept.renewed_again());
  kept.answer(FakeStore::Mode::silent);
  REQUIRE(kept.next_loss(within));
  for (const LockKey& key : {a, b}) CHECK(kept.holds.about_to_be_released(key));
  CHECK(kept.holds.in_trouble());
  for (const LockKey& key : {a, b}) kept.holds.not_released(key);
  CHECK(kept.holds.in_trouble());
}

TEST_CASE("attached holds: a release without an answer may be done later, and is no loss then") {
  Kept kept;
  REQUIRE(kept.renewed_again());
  CHECK(kept.holds.about_to_be_released(a));
  kept.store.answer("a", FakeStore::Mode::gone);
  CHECK(!kept.next_loss(some_renewals));
  CHECK(kept.holds.about_to_be_released(a));
}

/// Whether each of two outages, which end before a lease does, is reported once, and both holds
/// survive.
bool outages_are_told_once() {
  Kept kept(milliseconds(4000), milliseconds(4500));
  bool as_told = kept.renewed_again();
  for (int outage = 0; outage < 2 && as_told; ++outage) {
    kept.answer(FakeStore::Mode::silent);
    as_told = kept.next_loss(within).value_or("").ends_with(": no answer in time") &&
              !kept.next_loss(some_renewals) && kept.holds.in_trouble();
    kept.answer(FakeStore::Mode::renews);
    const auto is_over = [&] { return !kept.next_loss(pace) && !kept.holds.in_trouble(); };
    as_told = as_told && eventually(is_over, milliseconds(5000));
  }
  return as_told && kept.holds.about_to_be_released(a) && kept.holds.about_to_be_released(b);
}

TEST_CASE("attached holds: each time that a server is silent is told once, before a lease ends") {
  // On a busy machine, a lease may expire now and then, but not in every try.
  bool as_told = false;
  for (int tries = 0; tries < 5 && !as_told; ++tries) as_told = outages_are_told_once();
  CHECK(as_told);
}

TEST_CASE(
    "attached holds: what a step of the clock has put in doubt stays so for the next keeper") {
  auto held = Kept::granted(long_lease);
  held.resize(1);
  held[0].clock_jump = std::chrono::hours(1);
  FakeStore store(long_lease, long_lease);
  store.answer("a", FakeStore::Mode::silent);
  LeaseRenewer keeper(store, held);
  CHECK(eventually([&] { return keeper.lost(); }));
  CHECK(keeper.loss().value_or(Loss{}).reason.find("was set forward by 1h") != std::string::npos);
}

TEST_CASE("attached holds: a renewal that never comes back does not keep the warning back") {
  Kept kept(milliseconds(6000));
  REQUIRE(kept.renewed_again());
  kept.store.stop_in_renewal();
  const auto loss = kept.next_loss(within);
  CHECK(kept.store.is_in_renewal());
  kept.store.let_go();
  CHECK(loss.value_or("").starts_with("lost "));
}

TEST_CASE("attached holds: what cannot be renewed while it is released ends without a word") {
  Kept kept(milliseconds(6000));
  REQUIRE(kept.renewed_again());
  CHECK(kept.holds.about_to_be_released(a));
  CHECK(kept.holds.about_to_be_released(b));
  kept.answer(FakeStore::Mode::silent);
  CHECK(!kept.next_loss(milliseconds(6300)));
  CHECK(!kept.holds.empty());  // the server may still have them
  kept.holds.release(milliseconds(1000));
  CHECK(kept.store.released().size() == 2);
}

TEST_CASE("attached holds: a key that is not held cannot be released") {
  Kept kept;
  CHECK(!kept.holds.about_to_be_released(LockKey{"c"}));
}

}  // namespace
}  // namespace dlock::test
