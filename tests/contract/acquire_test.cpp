// acquire() for one key and several: waiting, timeouts and interruption.

#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "contract/engines.hpp"
#include "lock/release.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

/// One owner's claims on these keys.
std::vector<Claim> claims_on(const std::vector<std::string>& keys, milliseconds ttl = long_ttl) {
  std::vector<Claim> claims;
  for (const auto& key : keys) {
    claims.push_back(claim_on(key, ttl));
    claims.back().owner = claims.front().owner;
    claims.back().token = claims.front().token;
  }
  return claims;
}

bool is_free(Store& store, const std::string& key) {
  const KeyState state = state_of(store, key);
  return state.holders.empty() && state.waiters.empty();
}

bool is_awaited(Store& store, const std::string& key) {
  return !state_of(store, key).waiters.empty();
}

TEST_OF_ENGINES("several keys are taken in byte order, whatever the order they are given in") {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  const Claim blocking = taken(*store, claim_on("b"));
  LockAcquirer<Engine> acquiring(engine, claims_on({"\xc3\xa4", "c", "a", "b", "B"}));
  REQUIRE(eventually([&] { return is_awaited(*watcher, "b"); }));
  CHECK(!is_free(*watcher, "B"));
  CHECK(!is_free(*watcher, "a"));
  CHECK(is_free(*watcher, "c"));
  CHECK(is_free(*watcher, "\xc3\xa4"));
  release(*store, blocking);
  const auto held = had(acquiring.result());
  std::string order;
  for (const Held& each : held) order += each.claim.key.text;
  CHECK(order == "Babc\xc3\xa4");
  CHECK(acquiring.listener.waited_for == std::vector<std::string>{"b"});
  CHECK(acquiring.listener.times_let_in == 1);
  for (const Held& each : held) CHECK(each.grant.lease.valid_until > BootClock::now());
}

TEST_OF_ENGINES("of several keys all are taken or none") {
  Engine engine;
  const auto store = engine.open(), asking = engine.open();
  const Claim blocking = taken(*store, claim_on("b"));
  Listener listener;
  const auto answer =
      acquire(*asking, claims_on({"a", "b", "c"}), {milliseconds(0), -1, {}, false}, listener);
  REQUIRE(std::holds_alternative<GaveUp>(answer));
  const auto& gave_up = std::get<GaveUp>(answer);
  CHECK(gave_up.key.text == "b");
  CHECK(!gave_up.waited);
  CHECK(gave_up.refusal.held_by.at(0).owner == blocking.owner.text);
  CHECK(is_free(*store, "a"));
  CHECK(is_free(*store, "c"));
  release(*store, blocking);
  CHECK(engine.litter() == "");
}

TEST_OF_ENGINES("what is had is renewed while the next is waited for") {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  // Each request may take a sixth of the lease, and a renewal is due after a third.
  constexpr milliseconds ttl{30'000};
  const Claim blocking = taken(*store, claim_on("b"));
  LockAcquirer<Engine> acquiring(engine, claims_on({"a", "b"}, ttl));
  REQUIRE(eventually([&] { return is_awaited(*watcher, "b"); }));
  const Fence fence = state_of(*watcher, "a").holders.at(0).fence;
  // A renewal adds a third of the lease; the reported rest may be slightly off.
  constexpr milliseconds told_wrong_by{500};
  auto least = ttl;
  REQUIRE(eventually([&] {
    const auto left = state_of(*watcher, "a").holders.at(0).lease_left.value();
    least = std::min(least, left);
    return left > least + told_wrong_by;
  }));
  release(*store, blocking);
  const auto held = had(acquiring.result());
  REQUIRE(held.size() == 2);
  CHECK(held[0].grant.fence == fence);
  for (const Held& each : held) {
    CHECK(each.grant.lease.valid_until > acquiring.ended() + ttl / 3);
    CHECK(each.grant.lease.valid_until <= acquiring.ended() + ttl);
  }
}

TEST_OF_ENGINES("if what is had is lost meanwhile, it begins again") {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  const Claim blocking = taken(*store, claim_on("b"));
  LockAcquirer<Engine> acquiring(engine, claims_on({"a", "b"}, milliseconds(30'000)));
  REQUIRE(eventually([&] { return is_awaited(*watcher, "b"); }));
  const auto out = store->evict(LockKey{"a"}, {std::nullopt, evictor}, soon());
  REQUIRE(out.size() == 1);
  REQUIRE(eventually([&] {
    const auto holders = state_of(*watcher, "a").holders;
    return holders.size() == 1 && holders[0].fence > out[0].fence && is_awaited(*watcher, "b");
  }));
  CHECK(state_of(*watcher, "b").waiters.size() == 1);
  release(*store, blocking);
  const auto held = had(acquiring.result());
  REQUIRE(held.size() == 2);
  CHECK(held[0].grant.fence > out[0].fence);
  CHECK(acquiring.listener.waited_for == std::vector<std::string>{"b"});
}

TEST_OF_ENGINES("two who want the same two keys in opposite order never dead-lock nor overlap") {
  Engine engine;
  std::atomic<int> inside = 0, overlaps = 0, rounds = 0;
  const auto work = [&](const std::vector<std::string>& keys) {
    const auto store = engine.open();
    Listener listener;
    const Event end;
    for (int round = 0; round < 200; ++round) {
      const auto claims = claims_on(keys);
      const auto open_second = [&] { return engine.open(); };
      const auto answer =
          acquire(*store, claims, {milliseconds(60'000), -1, open_second}, listener);
      const auto* held = std::get_if<std::vector<Held>>(&answer);
      if (held == nullptr) return;
      if (++inside != 1) ++overlaps;
      ++rounds;
      --inside;
      release_all(*store, *held, milliseconds(20'000));
    }
  };
  std::thread other(work, std::vector<std::string>{"b", "a"});
  work({"a", "b"});
  other.join();
  CHECK(rounds == 400);
  CHECK(overlaps == 0);
  CHECK(engine.litter() == "");
}

TEST_OF_ENGINES("one who is broken off while waiting leaves nothing held and nothing queued") {
  Engine engine;
  const auto store = engine.open();
  bool left_nothing = false;
  // On a busy machine, acquire() may have too little time to release everything.
  for (int attempt = 0; attempt < 5 && !left_nothing; ++attempt) {
    const std::string first = "a" + std::to_string(attempt), second = "b" + std::to_string(attempt);
    const Claim blocking = taken(*store, claim_on(second));
    LockAcquirer<Engine> acquiring(engine, claims_on({first, second}));
    REQUIRE(eventually([&] { return is_awaited(*store, second); }));
    const auto interrupted = BootClock::now();
    acquiring.interrupt();
    CHECK(std::holds_alternative<Interrupted>(acquiring.result()));
    CHECK(acquiring.ended() - interrupted < std::chrono::seconds(20));
    const bool nearly_cut_off = acquiring.ended() - interrupted >= milliseconds(400);
    left_nothing = is_free(*store, first) && state_of(*store, second).waiters.empty();
    CHECK((left_nothing || nearly_cut_off));
    release(*store, blocking);
    if (left_nothing) CHECK(eventually([&] { return enters(*store, claim_on(second)); }));
  }
  CHECK(left_nothing);
}

TEST_OF_ENGINES("a wait that runs out ends in time, and leaves nothing held and nothing queued") {
  Engine engine;
  const auto store = engine.open();
  constexpr milliseconds wait{1000};
  bool ended_well = false;
  // On a busy machine, the time may be over before acquire() waits, or too short to release
  // everything.
  for (int attempt = 0; attempt < 5 && !ended_well; ++attempt) {
    const std::string first = "a" + std::to_string(attempt), second = "b" + std::to_string(attempt);
    granted(*store, claim_on(second));
    const auto before = BootClock::now();
    LockAcquirer<Engine> acquiring(engine, claims_on({first, second}), wait);
    const auto answer = acquiring.result();
    REQUIRE(std::holds_alternative<GaveUp>(answer));
    CHECK(std::get<GaveUp>(answer).key.text == second);
    CHECK(acquiring.ended() - before >= wait);
    const bool in_time = acquiring.ended() - before < stretched(wait * 2);
    const bool left_nothing = is_free(*store, first) && state_of(*store, second).waiters.empty();
    ended_well = std::get<GaveUp>(answer).waited && in_time && left_nothing;
  }
  CHECK(ended_well);
}

TEST_OF_ENGINES("one who waited too long holds nothing even where the lock came in that moment") {
  Engine engine;
  const auto store = engine.open();
  // acquire() stops releasing after half a second, which may be too little on a busy machine.
  constexpr milliseconds nearly_cut_off{400};
  int looked = 0;
  for (int i = 0; i < 10 || (looked < 3 && i < 40); ++i) {
    const std::string key = "k" + std::to_string(i);
    Claim blocking = claim_on(key, milliseconds(300));
    const auto lease = granted_briefly(*store, blocking).lease.length;
    const auto before = BootClock::now();
    LockAcquirer<Engine> acquiring(engine, claims_on({key}), lease);
    const auto answer = acquiring.result();
    const bool had = std::holds_alternative<std::vector<Held>>(answer);
    const bool cut_off = !had && acquiring.ended() - before >= lease + nearly_cut_off;
    if (!cut_off) ++looked;
    // A lease may expire a little later than its holder may assume.
    const auto is_left = [&] {
      return !eventually([&] { return is_free(*store, key); }, milliseconds(5000));
    };
    if (!cut_off) CHECK((had ? !is_free(*store, key) : !is_left()));
    store->evict(LockKey{key}, {std::nullopt, evictor}, soon());
  }
  CHECK(looked >= 3);
}

TEST_OF_ENGINES("an upgrade is refused at once, however long one would wait") {
  Engine engine;
  const auto store = engine.open();
  granted(*store, claim_of("a", "k", no_limit));
  granted(*store, claim_of("b", "k", no_limit));
  LockAcquirer<Engine> acquiring(engine, {claim_of("a/x", "k")});
  const auto answer = acquiring.result();
  REQUIRE(std::holds_alternative<GaveUp>(answer));
  CHECK(std::get<GaveUp>(answer).refusal.why == Refusal::Reason::upgrade);
  CHECK(!std::get<GaveUp>(answer).waited);
}

TEST_OF_ENGINES("the lock of a holder that has died goes to the waiter as its lease ends") {
  Engine engine;
  constexpr milliseconds ttl{300};
  const auto in_time = engine.longest(ttl) - ttl + stretched(milliseconds(100));
  auto best = milliseconds::max();
  // On a busy machine, a single attempt may be late for other reasons.
  for (int attempt = 0; attempt < 5 && best >= in_time; ++attempt) {
    const auto store = engine.open();
    const auto before = BootClock::now();
    Claim dead = claim_on("k", ttl);
    granted_briefly(*store, dead);
    LockAcquirer<Engine> acquiring(engine, claims_on({"k"}));
    const auto held = had(acquiring.result());
    const auto waited = std::chrono::floor<milliseconds>(acquiring.ended() - before);
    CHECK(waited >= dead.ttl - milliseconds(1));
    best = std::min(best, waited - dead.ttl);
    release_all(*acquiring.store, held, milliseconds(20'000));
  }
  CHECK(best < in_time);
}

/// Grants the lock to `size` waiters in turn; returns how many came fast enough to judge their
/// order.
template <typename Engine>
std::size_t let_in_a_crowd(Engine& engine, const std::string& key, std::size_t size) {
  const auto holder = engine.open(), watcher = engine.open();
  // Long enough for all of them to queue up on a busy machine.
  const Claim blocking = taken(*holder, claim_on(key, std::chrono::minutes(10)));
  std::list<LockAcquirer<Engine>> crowd;
  for (std::size_t i = 0; i < size; ++i) {
    crowd.emplace_back(engine, claims_on({key}));
    REQUIRE(eventually([&] { return state_of(*watcher, key).waiters.size() == i + 1; }));
  }
  auto turn_began = BootClock::now();
  release(*holder, blocking);
  Fence last;
  std::size_t judged = 0;
  while (!crowd.empty()) {
    auto next = crowd.end();
    REQUIRE(eventually([&] {
      next = std::find_if(crowd.begin(), crowd.end(),
                          [](const auto& each) { return each.has_ended(); });
      return next != crowd.end();
    }));
    // Over several servers, a waiter with too few votes lets a later one go first; over one, so
    // does a waiter that does not listen for a second, as on a busy machine.
    const bool none_was_away = BootClock::now() - turn_began < milliseconds(900);
    if (!engine.by_majority() && none_was_away) CHECK(next == crowd.begin());
    if (none_was_away) ++judged;
    const auto held = had(next->result());
    CHECK(held.at(0).grant.fence > last);
    last = held.at(0).grant.fence;
    turn_began = BootClock::now();
    CHECK(release_all(*next->store, held, milliseconds(20'000)));
    crowd.erase(next);
  }
  return judged;
}

TEST_OF_ENGINES("a crowd is let in one by one, and nobody is forgotten") {
  Engine engine;
  constexpr std::size_t size = 12;
  std::size_t judged = 0;
  // On a busy machine, most waiters may be slow, but not in every attempt.
  for (int attempt = 0; attempt < 5 && judged < size / 2; ++attempt) {
    judged = let_in_a_crowd(engine, "k" + std::to_string(attempt), size);
  }
  CHECK(judged >= size / 2);
  CHECK(engine.litter() == "");
}

}  // namespace
}  // namespace dlock::test
