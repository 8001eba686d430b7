// The queue of one key: the order of service, and waiters that leave.

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/wait.hpp"
#include "contract/engines.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

/// A queued waiter and its client.
struct Waiting {
  StorePtr store;
  Claim claim;
};

template <typename Engine>
Waiting waiter(Engine& engine, const std::string& key, Limit limit = exclusive) {
  Waiting waiting{engine.open(), claim_on(key)};
  waiting.claim.limit = limit;
  queue_up(*waiting.store, waiting.claim);
  return waiting;
}

/// An idle waiter counts as dead after a while, and on a busy machine the whole queue takes longer:
/// the waiters ask again while the key is held, as acquire() does.
template <typename Iterator>
void ask_again(Iterator first, Iterator last, Deadline& asked) {
  if (BootClock::now() < later(asked, milliseconds(1000))) return;
  asked = BootClock::now();
  for (; first != last; ++first) refused(*first->store, first->claim, {true, {}});
}

bool served(Waiting& waiting) { return let_in(*waiting.store, waiting.claim); }
bool is_first(const KeyState& state, const Waiting& waiting) {
  return !state.waiters.empty() && state.waiters[0].owner == waiting.claim.owner.text;
}

TEST_OF_ENGINES("twenty waiters are served in the order they came") {
  Engine engine;
  const auto holder = engine.open(), watcher = engine.open();
  // Long enough for all of them to queue up on a busy machine.
  const Claim held = claim_on("k", std::chrono::minutes(10));
  Fence last = granted(*holder, held).fence;
  std::list<Waiting> queue;
  auto asked = BootClock::now();
  for (int i = 0; i < 20; ++i) {
    queue.push_back(waiter(engine, "k"));
    if (!engine.by_majority()) ask_again(queue.begin(), queue.end(), asked);
  }
  release(*holder, held);
  for (std::size_t left = queue.size(); left > 0; --left) {
    CAPTURE(left);
    REQUIRE(served(queue.front()));
    const KeyState state = state_of(*watcher, "k");
    REQUIRE(state.holders.size() == 1);
    CHECK(state.holders[0].owner == queue.front().claim.owner.text);
    CHECK(state.holders[0].fence > last);
    // On a busy machine, a hand-over by a majority may have expired, with the next waiter's
    // position.
    CHECK((state.waiters.size() == left - 1 ||
           (engine.by_majority() && state.waiters.size() < left)));
    last = state.holders[0].fence;
    if (!engine.by_majority()) ask_again(std::next(queue.begin()), queue.end(), asked);
    CHECK(release(*queue.front().store, queue.front().claim) == Released::yes);
    queue.pop_front();
  }
  CHECK(engine.litter() == "");
}

TEST_OF_ENGINES("the answer to a waiter tells its place, and its place stays while it asks again") {
  Engine engine;
  const auto holder = engine.open();
  granted(*holder, claim_on("k"));
  const auto first = waiter(engine, "k"), second = waiter(engine, "k");
  const Refusal refusal = refused(*second.store, second.claim, {true, {}});
  CHECK(refusal.ahead == 1);
  CHECK(refusal.waiting == 2);
  CHECK(refused(*first.store, first.claim, {true, {}}).ahead == 0);
  CHECK(refused(*first.store, first.claim, {true, refusal.ticket}).ahead == 0);
  const Refusal onlooker = refused(*holder, claim_on("k"));
  CHECK(onlooker.ahead == 2);
  CHECK(onlooker.waiting == 2);
}

TEST_OF_ENGINES("a release hands over by message, and a renewal confirms to the full lease") {
  Engine engine;
  const auto holder = engine.open();
  const Claim held = claim_on("k");
  const Fence before = granted(*holder, held).fence;
  const auto next = waiter(engine, "k");
  CHECK(release(*holder, held) == Released::yes);
  KeyState state = state_of(*holder, "k");
  CHECK(state.waiters.empty());
  CHECK(*state.holders.at(0).lease_left <=
        engine.time_to_confirm(long_ttl) + engine.clock_unsure());
  CHECK(news(*next.store, next.claim, Wake::Reason::granted));
  const auto lease = renew(*next.store, next.claim);
  REQUIRE(lease);
  CHECK(lease->fence > before);
  CHECK(lease->lease.length == next.claim.ttl);
  state = state_of(*holder, "k");
  CHECK(state.holders.at(0).fence == lease->fence);
  CHECK(*state.holders.at(0).lease_left > milliseconds(6000));
}

TEST_OF_ENGINES("asking again confirms what was handed over as well") {
  Engine engine;
  const auto holder = engine.open();
  const Claim held = taken(*holder, claim_on("k"));
  const auto next = waiter(engine, "k");
  release(*holder, held);
  CHECK(granted(*next.store, next.claim, {true, {}}).lease.length == next.claim.ttl);
  CHECK(*state_of(*holder, "k").holders.at(0).lease_left > milliseconds(6000));
}

Claim latest_claim(const std::string& label) {
  Claim claim = claim_on("k");
  claim.latest = true;
  claim.who.label = label;
  return claim;
}

TEST_OF_ENGINES("of the claims that ask as latest the newest waits, and supersedes the older") {
  Engine engine;
  const auto holder = engine.open(), older = engine.open(), newer = engine.open();
  Claim held = latest_claim("held"), old = latest_claim("old"), fresh = latest_claim("new");
  granted(*holder, held);
  const Ticket ticket = queue_up(*older, old);
  auto other = waiter(engine, "k");
  queue_up(*newer, fresh);
  const Refusal refusal = refused(*older, old, {true, ticket});
  CHECK(refusal.why == Refusal::Reason::superseded);
  REQUIRE(refusal.held_by.size() == 1);
  CHECK(refusal.held_by[0].who == fresh.who);
  const KeyState state = state_of(*holder, "k");
  CHECK(state.waiters.size() == 2);
  CHECK(is_first(state, other));
  CHECK(state.holders.size() == 1);
  release(*holder, held);
  REQUIRE(served(other));
  release(*other.store, other.claim);
  REQUIRE(let_in(*newer, fresh));
  release(*newer, fresh);
  // The older claim does not run after it, either.
  CHECK(refused(*older, old, {true, ticket}).why == Refusal::Reason::superseded);
  CHECK(enters(*holder, claim_on("k")));
}

TEST_OF_ENGINES("a superseded waiter is woken, and gives up") {
  Engine engine;
  const auto holder = engine.open();
  granted(*holder, claim_on("k"));
  LockAcquirer<Engine> older(engine, {latest_claim("old")});
  REQUIRE(eventually([&] { return state_of(*holder, "k").waiters.size() == 1; }));
  const auto asked = BootClock::now();
  LockAcquirer<Engine> newer(engine, {latest_claim("new")});
  const Acquired result = older.result();
  CHECK(older.ended() - asked < milliseconds(15'000));  // it would poll after 25 s
  REQUIRE(std::holds_alternative<GaveUp>(result));
  const Refusal& refusal = std::get<GaveUp>(result).refusal;
  CHECK(refusal.why == Refusal::Reason::superseded);
  CHECK(refusal.held_by.at(0).who.label == "new");
  CHECK(eventually([&] { return state_of(*holder, "k").waiters.size() == 1; }));
  newer.interrupt();
}

TEST_OF_ENGINES("a latest claim that comes back under another token is as old as it was") {
  Engine engine;
  const auto holder = engine.open(), older = engine.open(), newer = engine.open();
  granted(*holder, claim_on("k"));
  Claim old = latest_claim("old"), fresh = latest_claim("new");
  const Ticket ticket = queue_up(*older, old);
  release(*older, old);
  queue_up(*newer, fresh);
  old.token = new_token(old.owner);
  CHECK(refused(*older, old, {true, ticket}).why == Refusal::Reason::superseded);
  const KeyState state = state_of(*holder, "k");
  REQUIRE(state.waiters.size() == 1);
  CHECK(state.waiters[0].who.label == "new");
}

TEST_OF_ENGINES("a latest claim that comes back under another token is not superseded by itself") {
  Engine engine;
  const auto holder = engine.open();
  granted(*holder, claim_on("k"));
  // The random tokens may sort either way.
  for (int i = 0; i < 4; ++i) {
    const auto waiting = engine.open();
    Claim claim = latest_claim("once");
    const Ticket ticket = queue_up(*waiting, claim);
    release(*waiting, claim);
    claim.token = new_token(claim.owner);
    CHECK(refused(*waiting, claim, {true, ticket}).why == Refusal::Reason::held);
    release(*waiting, claim);
  }
}

/// The time until the second waiter has the key if the first never confirms.
struct PassedOn {
  milliseconds since_release;
  milliseconds since_asked;  ///< since the first asked, when its client lease (if any) began
};

/// Empty if the first had left the queue before the second came.
template <typename Engine>
std::optional<PassedOn> passed_on_after(Engine& engine, milliseconds ttl_of_first,
                                        milliseconds floor_of_first = milliseconds(0)) {
  const auto holder = engine.open(), deaf = engine.open(), watcher = engine.open();
  const Claim held = claim_on("k");
  Claim first = claim_on("k", ttl_of_first);
  first.floor = floor_of_first;
  granted(*holder, held);
  const auto asked = BootClock::now();
  queue_up(*deaf, first);
  LockAcquirer<Engine> second(engine, {claim_on("k")}, milliseconds(60'000));
  bool both = false;
  // On engines with client leases, a busy machine may let a short one expire before that.
  REQUIRE(eventually([&] {
    const auto waiters = state_of(*watcher, "k").waiters;
    const bool first_waits = std::any_of(waiters.begin(), waiters.end(), [&](const Waiter& each) {
      return each.owner == first.owner.text;
    });
    both = first_waits && waiters.size() == 2;
    return both || (!first_waits && !waiters.empty()) || second.has_ended();
  }));
  const auto before = BootClock::now();
  release(*holder, held);
  const auto won = had(second.result());
  REQUIRE(won.size() == 1);
  CHECK(!renew(*deaf, first));
  release(*second.store, won[0].claim);  // for another attempt
  if (!both) return std::nullopt;
  return PassedOn{std::chrono::floor<milliseconds>(second.ended() - before),
                  std::chrono::floor<milliseconds>(second.ended() - asked)};
}

/// The time that must not be too short. On engines with client leases, the first waiter's lease
/// starts with its request, and it may take all of it to confirm.
template <typename Engine>
milliseconds at_least(const Engine& engine, const PassedOn& after) {
  const bool has_lives = engine.time_to_confirm(long_ttl) == long_ttl;
  return has_lives ? after.since_asked : after.since_release;
}

TEST_OF_ENGINES(
    "a hand-over that is not confirmed passes on after six seconds, or two, or the waiter's "
    "lease") {
  Engine engine;
  std::optional<PassedOn> after;
  for (int attempt = 0; attempt < 5 && !after; ++attempt) after = passed_on_after(engine, long_ttl);
  REQUIRE(after);
  // If the waiter confirms before it starts its command, no command has to survive a failure.
  const auto time = engine.time_to_confirm(long_ttl);
  CHECK(at_least(engine, *after) >= time - milliseconds(100));
  CHECK(after->since_release < stretched(time + engine.clock_unsure() + milliseconds(3000)));
}

TEST_OF_ENGINES("a hand-over that is not confirmed leaves nothing of its --min-hold") {
  Engine engine;
  std::optional<PassedOn> after;
  for (int attempt = 0; attempt < 5 && !after; ++attempt) {
    after = passed_on_after(engine, milliseconds(300), milliseconds(60'000));
  }
  REQUIRE(after);
  CHECK(after->since_release < stretched(milliseconds(5000)));
}

TEST_OF_ENGINES("a job that ends before its hand-over is confirmed keeps its --min-hold") {
  Engine engine;
  bool released = false;
  // On a busy machine, the handed-over hold may expire before its release.
  for (int attempt = 0; attempt < 5 && !released; ++attempt) {
    const std::string key = "k" + std::to_string(attempt);
    const auto holder = engine.open(), waiter = engine.open(), watcher = engine.open();
    const Claim held = claim_on(key);
    Claim next = claim_on(key);
    next.floor = long_ttl;
    granted(*holder, held);
    queue_up(*waiter, next);
    release(*holder, held);
    REQUIRE(news(*waiter, next, Wake::Reason::granted));
    released = release(*waiter, next) == Released::yes;
    if (!released) continue;
    const Refusal refusal = refused(*watcher, claim_on(key));
    REQUIRE(refusal.held_by.size() == 1);
    CHECK(refusal.held_by[0].kept);
  }
  CHECK(released);
}

TEST_OF_ENGINES(
    "a hand-over that is not confirmed passes on after the waiter's ttl if it is less") {
  Engine engine;
  constexpr milliseconds ttl{300};
  const auto in_time = stretched(engine.longest(ttl) + milliseconds(700));
  auto best = milliseconds::max();
  // On a busy machine, a single attempt may be late for other reasons.
  for (int attempt = 0; attempt < 5 && best >= in_time; ++attempt) {
    const auto after = passed_on_after(engine, ttl);
    if (!after) continue;
    CHECK(at_least(engine, *after) >= ttl - milliseconds(1));
    best = std::min(best, after->since_release);
  }
  CHECK(best < in_time);
}

TEST_OF_ENGINES("a waiter that has left is passed over") {
  Engine engine;
  const auto holder = engine.open();
  const Claim held = taken(*holder, claim_on("k"));
  auto first = waiter(engine, "k"), second = waiter(engine, "k"), third = waiter(engine, "k");
  CHECK(release(*second.store, second.claim) == Released::left_queue);
  CHECK(release(*second.store, second.claim) == Released::not_held);
  CHECK(release(*first.store, first.claim) == Released::left_queue);
  release(*holder, held);
  CHECK(served(third));
}

TEST_OF_ENGINES("waiters whose clients have died are passed over, anywhere in the queue") {
  Engine engine;
  const auto holder = engine.open();
  const Claim held = taken(*holder, claim_on("k"));
  Waiting dead[] = {waiter(engine, "k"), waiter(engine, "k")};
  auto living = waiter(engine, "k");
  Waiting dead_too = waiter(engine, "k");
  auto last = waiter(engine, "k");
  for (Waiting& each : dead) each.store.reset();
  dead_too.store.reset();
  engine.await_waiters("k", 2);
  const auto before = BootClock::now();
  release(*holder, held);
  CHECK(served(living));
  release(*living.store, living.claim);
  CHECK(served(last));
  // A server gives all absent waiters one common moment to return. An engine that cannot see deaths
  // hands over to each of them, and waits until that stays unconfirmed.
  CHECK(BootClock::now() - before < stretched(milliseconds(engine.sees_deaths() ? 3900 : 22'000)));
}

TEST_OF_ENGINES("a ticket that is brought back keeps the place, even before those who came since") {
  Engine engine;
  const auto holder = engine.open();
  const Claim held = taken(*holder, claim_on("k"));
  Waiting first{engine.open(), claim_on("k")};
  const Ticket ticket = queue_up(*first.store, first.claim);
  auto second = waiter(engine, "k"), third = waiter(engine, "k");
  first.store.reset();
  engine.await_waiters("k", 2);
  release(*holder, held);
  REQUIRE(served(second));  // the first is absent, so it was dropped
  first.store = engine.open();
  // Over several servers, one may still process earlier requests; silent waiters, however, expire
  // with the lease of the second.
  constexpr milliseconds soon_enough{10'000};
  const auto ahead = [&] { return refused(*first.store, first.claim, {true, ticket}).ahead; };
  CHECK(eventually([&] { return ahead() == 0; }, soon_enough));
  CHECK(eventually([&] { return is_first(state_of(*holder, "k"), first); }, soon_enough));
  release(*second.store, second.claim);
  CHECK(served(first));
  release(*first.store, first.claim);
  CHECK(served(third));
}

TEST_OF_ENGINES("a request that does not wait is refused while somebody waits, room or not") {
  Engine engine;
  const auto store = engine.open();
  granted(*store, claim_of("a", "k", no_limit));
  const auto writer = waiter(engine, "k");
  const Refusal refusal = refused(*store, claim_of("b", "k", no_limit));
  CHECK(refusal.why == Refusal::Reason::held);
  CHECK(refusal.ahead == 1);
  CHECK(refusal.waiting == 1);
  CHECK(state_of(*store, "k").waiters.size() == 1);
}

TEST_OF_ENGINES("a request from inside is granted though others wait") {
  Engine engine;
  const auto store = engine.open();
  granted(*store, claim_of("a", "k"));
  const auto waiting = waiter(engine, "k");
  CHECK(enters(*store, claim_of("a/b", "k")));
}

TEST_OF_ENGINES("one release lets in all that fit, and stops at the first that does not") {
  Engine engine;
  const auto holder = engine.open();
  const Claim held = taken(*holder, claim_on("k"));
  auto a = waiter(engine, "k", Limit{3}), b = waiter(engine, "k", Limit{2});
  auto writer = waiter(engine, "k"), late = waiter(engine, "k", no_limit);
  release(*holder, held);
  CHECK(served(a));
  CHECK(served(b));
  const KeyState state = state_of(*holder, "k");
  CHECK(state.holders.size() == 2);
  CHECK(state.waiters.size() == 2);
  CHECK(is_first(state, writer));
  release(*a.store, a.claim);
  CHECK(state_of(*holder, "k").waiters.size() == 2);
  release(*b.store, b.claim);
  CHECK(served(writer));
  release(*writer.store, writer.claim);
  CHECK(served(late));
}

TEST_OF_ENGINES("the first in the queue is told when what blocks it will end sooner") {
  Engine engine;
  const auto holder = engine.open();
  const Claim held = taken(*holder, claim_on("k"));
  const auto first = waiter(engine, "k");
  // The lease must outlast a slow reader of the message, and expire before the wait for it does.
  constexpr milliseconds ttl{15'000};
  REQUIRE(holder->renew(held, {.ttl = ttl}, soon()).grant);
  const auto wake = news(*first.store, first.claim, Wake::Reason::changed);
  REQUIRE(wake);
  CHECK(wake->ask_again_at <= later(BootClock::now(), ttl + 2 * engine.clock_unsure()));
}

TEST_OF_ENGINES("a sleep ends when it is due and when it is broken off") {
  Engine engine;
  const auto holder = engine.open();
  granted(*holder, claim_on("k"));
  const auto first = waiter(engine, "k");
  const auto until = later(BootClock::now(), milliseconds(30));
  CHECK(first.store->sleep(first.claim, until, -1).why == Wake::Reason::due);
  CHECK(BootClock::now() >= until);
  const Event interrupt;
  interrupt.raise();
  CHECK(first.store->sleep(first.claim, soon().deadline, interrupt.fd()).why ==
        Wake::Reason::interrupted);
}

TEST_OF_ENGINES("one client may wait for another key after the first") {
  Engine engine;
  const auto holder = engine.open(), store = engine.open();
  const Claim a = taken(*holder, claim_on("a")), b = claim_on("b");
  granted(*holder, b);
  Claim first = claim_on("a"), second = claim_on("b");
  queue_up(*store, first);
  release(*holder, a);
  CHECK(let_in(*store, first));
  queue_up(*store, second);
  release(*holder, b);
  CHECK(let_in(*store, second));
}

}  // namespace
}  // namespace dlock::test
