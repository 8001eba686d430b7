// The rule of the engines, for what no engine's own tests show: the clocks of a host, a queue of
// dead waiters, and hand-overs that nobody confirms. The last test compares the rule with the one
// of a server, which adds only events that a server knows: it sends the same random requests to the
// reference table, which is compared with the Redis script, and to the lock table. Every answer,
// every message and the whole state must be equal.

#include "rule/admission.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/redis_table.hpp"
#include "rule_support.hpp"
#include "support/chance.hpp"

using namespace dlock;
using dlock::test::claim;

namespace {

struct Listeners final : WaiterNotifier {
  std::set<Token> deaf;
  std::vector<std::pair<Token, Message>> sent;
  bool wake(const WaiterEntry& waiter, const Message& message) override {
    if (deaf.contains(waiter.token)) return false;
    sent.emplace_back(waiter.token, message);
    return true;
  }
};

struct Rules {
  LockTable table;
  Listeners listeners;
  microseconds clock{1'000'000};
  microseconds wall{5'000'000};

  Now now() const { return {clock, wall}; }
  void pass(milliseconds span) {
    clock += span;
    wall += span;
  }
  void ask(const Claim& claim, bool wait = false) {
    table.acquire(claim, {wait, {}}, {}, now(), listeners);
  }
  void queue_up(const std::string& token) {
    ask(claim(token, token), true);
    REQUIRE(!fence_of(token));
  }
  void release(const std::string& token) { table.release({token}, {}, now(), listeners); }
  /// The fence of a hold.
  std::optional<Fence> fence_of(const std::string& token) {
    const HoldEntry* hold = table.find_hold({token});
    return hold != nullptr ? std::optional(hold->fence) : std::nullopt;
  }
};

/// Some owners are inside others, and there are more tokens than owners.
constexpr const char* owners[] = {"a", "a/x", "a/x/y", "b", "b/y", "c", "d", "a-b"};
constexpr int tokens_each = 3;
constexpr int tokens = static_cast<int>(std::size(owners)) * tokens_each;

/// One random request or event.
struct Step {
  std::uint64_t kind;
  Claim claim;
  Ask ask;
  bool flag;
  microseconds passed;
};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }
  bool one_in(std::uint64_t count) { return random_() % count == 0; }

  Step step(microseconds clock) {
    Step step{};
    const int token = static_cast<int>(random_() % tokens);
    step.kind = random_() % 30;
    step.claim.key.text = "k";
    step.claim.owner.text = owners[token / tokens_each];
    step.claim.token.text = step.claim.owner.text + ":" + std::to_string(token);
    step.claim.limit.owners = one_of<std::int64_t>({1, 1, 1, 2, 3, 0, 0});
    step.claim.ttl = milliseconds(one_of({100, 1000, 1500, 5000, 30'000}));
    step.claim.floor = milliseconds(one_of({0, 0, 0, 0, 700, 40'000}));
    step.claim.who = Who{"h", token, "u", "c", "l"};
    step.claim.latest = one_in(4);
    step.ask.wait = !one_in(3);
    step.passed = microseconds(one_of<std::int64_t>(
        {0, 1, 999, 100'000, 100'001, 700'000, 2'000'000, 4'900'000, 6'000'000, 20'000'000,
         35'999'999, 36'000'000, 76'000'000, 121'000'000, -1, -50'000, -3'000'000}));
    if (step.ask.wait && one_in(4)) step.ask.ticket = Ticket{(clock + step.passed).count()};
    step.flag = one_in(3);
    return step;
  }

 private:
  std::mt19937_64 random_;
};

class Twins {
 public:
  Twins() { reference_.longest_absence = milliseconds(0); }

  /// The difference after the step; empty if there is none.
  std::string take(const Step& step) {
    rule_listeners_.sent.clear();
    reference_listeners_.sent.clear();
    const bool same_answer = answers_alike(step);
    if (!same_answer) return "the answer";
    if (rule_listeners_.sent != reference_listeners_.sent) return "the messages";
    return rule_ == reference_.stored ? "" : "the state";
  }
  microseconds clock() const { return clock_; }

 private:
  bool answers_alike(const Step& step) {
    const Token& token = step.claim.token;
    const Now now{clock_, clock_};
    const reference::ServerNow server_now{clock_};
    if (step.kind < 10) {
      return rule_.acquire(step.claim, step.ask, {}, now, rule_listeners_) ==
             reference_.acquire(step.claim, step.ask, server_now, reference_listeners_);
    }
    if (step.kind < 14) {
      const auto ttl = step.flag ? std::optional(step.claim.ttl) : std::nullopt;
      return rule_.renew(token, ttl, now, rule_listeners_) ==
             reference_.renew(token, ttl, server_now, reference_listeners_);
    }
    if (step.kind < 20) {
      const auto mode = step.flag ? ReleaseMode::ignore_floor : ReleaseMode::normal;
      return rule_.release(token, {mode, false, step.kind}, now, rule_listeners_) ==
             reference_.release(token, {false, step.flag, {}, step.kind}, server_now,
                                reference_listeners_);
    }
    if (step.kind == 20) {
      std::optional<Fence> fence;
      if (step.flag && !rule_.holds.empty()) fence = rule_.holds.front().fence;
      const Eviction how{fence, step.claim.who, step.ask.wait};
      return rule_.evict(how, now, rule_listeners_) ==
             reference_.force(how, server_now, reference_listeners_);
    }
    if (step.kind == 21) {
      rule_.admit_waiters(now, rule_listeners_);
      reference_.admit_waiters(server_now, reference_listeners_);
    } else if (step.kind < 26) {
      clock_ += step.passed;
    } else {
      for (Listeners* side : {&rule_listeners_, &reference_listeners_}) {
        if (step.flag) {
          side->deaf.insert(token);
        } else {
          side->deaf.erase(token);
        }
      }
    }
    return true;
  }

  LockTable rule_;
  reference::RedisTable reference_;
  Listeners rule_listeners_, reference_listeners_;
  microseconds clock_{1'790'000'000'000'000};
};

}  // namespace

TEST_CASE("rules: a fence is the wall clock, and one more than the last where that is behind") {
  Rules rules;
  rules.ask(claim("a", "a"));
  CHECK(rules.fence_of("a") == Fence{5'000'000});
  rules.release("a");
  rules.wall = microseconds(1);
  rules.ask(claim("b", "b"));
  CHECK(rules.fence_of("b") == Fence{5'000'001});
}

TEST_CASE("rules: a provisional grant that nobody confirms ends after six seconds") {
  Rules rules;
  rules.ask(claim("a", "a"));
  rules.queue_up("b");
  rules.queue_up("c");
  rules.release("a");
  rules.pass(milliseconds(5'999));
  rules.queue_up("c");
  CHECK(rules.fence_of("b"));
  rules.pass(milliseconds(1));
  rules.ask(claim("c", "c"), true);
  CHECK(rules.fence_of("c"));
  CHECK(!rules.fence_of("b"));
}

TEST_CASE("rules: a grant that nobody confirmed leaves no floor, one that was used does") {
  for (const bool used : {false, true}) {
    Rules rules;
    rules.ask(claim("a", "a"));
    Claim with_floor = claim("b", "b");
    with_floor.floor = milliseconds(20'000);
    rules.ask(with_floor, true);
    rules.release("a");
    if (used) rules.release("b");
    rules.pass(milliseconds(6'000));
    CHECK(rules.table.live_holds(rules.now()).empty() == !used);
    rules.ask(claim("c", "c"));
    CHECK(rules.fence_of("c").has_value() == !used);
  }
}

TEST_CASE("rules: the first waiter knows the end of a hand-over, however many came before it") {
  Rules rules;
  rules.ask(claim("holder", "holder"));  // for ten seconds, as the waiters first know
  std::vector<std::string> line;
  for (int i = 0; i < 20; ++i) {
    line.push_back("w" + std::to_string(100 + i));
    Claim waiter = claim(line.back(), line.back());
    waiter.ttl = milliseconds(5000);
    rules.ask(waiter, true);
  }
  std::string holder = "holder";
  for (; line.size() > 1; line.erase(line.begin())) {
    rules.release(holder);
    holder = line.front();
    const auto first = rules.table.find_waiter({line[1]});
    REQUIRE(first != rules.table.queue.end());
    CHECK(first->told > rules.clock);
    CHECK(first->told <= rules.clock + milliseconds(6000));
    rules.pass(milliseconds(3));
  }
}

TEST_CASE("rules: a living waiter is granted the key past any number of dead ones") {
  Rules rules;
  rules.ask(claim("a", "a"));
  for (int i = 0; i < 600; ++i) {
    rules.queue_up("w" + std::to_string(i));
    if (i < 599) rules.listeners.deaf.insert({"w" + std::to_string(i)});
  }
  rules.release("a");
  CHECK(rules.fence_of("w599"));
  CHECK(rules.table.queue.empty());
}

TEST_CASE("rules: the lock table and the reference table answer 200 000 random requests alike") {
  constexpr int rounds = 500;
  constexpr int steps_a_round = 400;
  const std::uint64_t seed = test::seed_of_this_run();
  MESSAGE("DLOCK_TEST_SEED=" << seed);
  for (int round = 0; round < rounds; ++round) {
    Dice dice(seed + static_cast<std::uint64_t>(round));
    Twins twins;
    for (int number = 0; number < steps_a_round; ++number) {
      const Step step = dice.step(twins.clock());
      const std::string difference = twins.take(step);
      REQUIRE_MESSAGE(difference.empty(), "round " << round << ", step " << number << " of kind "
                                                   << step.kind << " differs in " << difference);
    }
  }
}
