// The additions of a server and of a quorum node to the rule of one key: the reference that the
// Redis script is compared with.

#include <doctest/doctest.h>

#include "reference/redis_table.hpp"
#include "rule_support.hpp"

using namespace dlock;
using dlock::test::claim;

namespace {

struct Told final : WaiterNotifier {
  std::vector<Message> said;
  bool nobody_listens = false;
  bool wake(const WaiterEntry&, const Message& message) override {
    if (nobody_listens) return false;
    said.push_back(message);
    return true;
  }
};

struct NodeRules {
  reference::RedisTable table;
  Told told;
  reference::ServerNow now{std::chrono::hours(1), {}, true};

  std::variant<Granted, Refused> vote(const Claim& claim, std::int64_t proposal,
                                      bool wait = false) {
    return table.acquire(claim, {wait, {}}, now, told, Fence{proposal});
  }
  /// The fence; 0 if refused.
  std::int64_t fence_of(const std::variant<Granted, Refused>& answer) {
    const auto* granted = std::get_if<Granted>(&answer);
    return granted == nullptr ? 0 : granted->fence.value;
  }
  std::int64_t rejoin(const Claim& claim, std::int64_t fence) {
    const auto granted = table.rejoin(claim, Fence{fence}, now, told);
    return granted ? granted->fence.value : 0;
  }
  bool raise(const std::string& token, std::int64_t fence) {
    REQUIRE(table.renew({token}, {}, now, told, Fence{fence}).has_value());
    return table.stored.find_hold({token})->fence.value == fence;
  }
  Released release(const std::string& token, const reference::ReleaseTerms& terms = {}) {
    return table.release({token}, terms, now, told);
  }
};

/// A single server, which takes no proposals.
struct ServerRules : NodeRules {
  ServerRules() { now.is_node = false; }
  std::variant<Granted, Refused> acquire(const Claim& claim, bool wait = false) {
    return table.acquire(claim, {wait, {}}, now, told);
  }
};

constexpr std::int64_t hour = 3'600'000'000;
constexpr std::int64_t minute = 60'000'000;

}  // namespace

TEST_CASE("member rules: a fence is what was proposed, within a minute of the wall clock") {
  for (const auto& [proposed, fence] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {hour + 5, hour + 5}, {1, hour - minute}, {9 * hour, hour + minute}}) {
    NodeRules member;
    CHECK(member.fence_of(member.vote(claim("a", "a"), proposed)) == fence);
    member.release("a");
    CHECK(member.fence_of(member.vote(claim("b", "b"), proposed)) == fence + 1);
  }
}

TEST_CASE("member rules: who is let in has the fence it proposed when it asked last") {
  NodeRules member;
  member.vote(claim("a", "a"), hour);
  member.vote(claim("b", "b"), hour + 10, true);
  member.vote(claim("b", "b"), hour + 20, true);
  member.release("a");
  CHECK(member.table.stored.find_hold({"b"})->fence.value == hour + 20);
  CHECK(std::get<GrantMessage>(member.told.said.at(0)).fence.value == hour + 20);
}

TEST_CASE("member rules: a fence is raised unless a larger one was given out, with its owner's") {
  NodeRules member;
  member.vote(claim("a", "a", 0), hour);
  member.vote(claim("a2", "a/i", 0), hour + 3);
  CHECK(member.raise("a", hour + 7));
  CHECK(member.table.stored.find_hold({"a2"})->fence.value == hour + 7);
  CHECK(member.table.stored.last_fence.value == hour + 7);
  CHECK(!member.raise("a", hour + 6));
  member.vote(claim("b", "b", 0), hour + 20);
  CHECK(!member.raise("a", hour + 19));
  CHECK(!member.table.renew({"nobody"}, {}, member.now, member.told, Fence{hour * 2}));
  CHECK(member.table.stored.last_fence.value == hour + 20);
}

TEST_CASE("member rules: a hold rejoins past the queue, not beside another, and never again") {
  NodeRules member;
  member.vote(claim("x", "x"), hour);
  CHECK(member.rejoin(claim("a", "a"), hour + 5) == 0);
  member.vote(claim("w", "w"), hour + 9, true);
  member.release("x", {true, false, milliseconds(1000)});
  // It was next, and no waiter had to be notified.
  CHECK(member.table.stored.find_hold({"a"}) != nullptr);
  CHECK(member.table.stored.find_hold({"w"}) == nullptr);
  CHECK(member.rejoin(claim("x", "x"), hour + 5) == 0);
  CHECK(member.rejoin(claim("a", "a"), hour + 5) == hour + 5);
  CHECK(member.table.stored.last_fence.value == hour + 5);
  CHECK(member.rejoin(claim("a", "a"), hour + 10) == hour + 10);
  CHECK(member.rejoin(claim("a2", "a/i"), hour + 10) == hour + 10);
  CHECK(member.table.stored.last_fence.value == hour + 10);
}

TEST_CASE("member rules: an outer hold rejoins after an inner one of its owner") {
  NodeRules member;
  CHECK(member.rejoin(claim("a2", "a/i"), hour) == hour);
  // It contains another owner with another fence.
  CHECK(member.rejoin(claim("a", "a"), hour + 1) == 0);
  member.release("a");
  CHECK(member.rejoin(claim("a", "a"), hour) == hour);
  CHECK(member.table.stored.find_hold({"a2"})->owner.text == "a");
  CHECK(member.rejoin(claim("a3", "a/j"), hour) == hour);
}

TEST_CASE("member rules: readers and the owners of a semaphore keep each other out") {
  NodeRules member;
  const auto lets_in = [&](const Claim& asked) {
    return member.fence_of(member.vote(asked, hour)) != 0;
  };
  REQUIRE(lets_in(claim("a", "a", 3)));
  CHECK(lets_in(claim("b", "b", 3)));
  CHECK_FALSE(lets_in(claim("r", "r", 0)));
  CHECK(member.rejoin(claim("r2", "r2", 0), hour) == 0);
  // An owner that holds may also read, and then counts as a reader.
  CHECK(lets_in(claim("a2", "a/i", 0)));
  const auto beside = std::get<Refused>(member.vote(claim("b2", "b/i", 3), hour));
  CHECK(beside.why == Refusal::Reason::upgrade);
  CHECK(lets_in(claim("a3", "a/i", 3)));
  CHECK_FALSE(lets_in(claim("c", "c", 3)));
  for (const char* token : {"a", "a3", "b"}) member.release(token);
  // The reader that was first in the queue.
  CHECK(member.table.stored.find_hold({"r2"}) != nullptr);
  CHECK(lets_in(claim("r3", "r3", 0)));
  CHECK_FALSE(lets_in(claim("d", "d", 3)));
}

TEST_CASE("member rules: a kept reader keeps out newcomers, and no owner that is inside") {
  NodeRules member;
  const auto lets_in = [&](const Claim& asked) {
    return member.fence_of(member.vote(asked, hour)) != 0;
  };
  REQUIRE(lets_in(claim("a", "a", 3)));
  Claim reading = claim("r", "a/r", 0);
  reading.floor = milliseconds(5000);
  REQUIRE(lets_in(reading));
  member.release("r");
  CHECK(lets_in(claim("a2", "a/i", 3)));
  CHECK_FALSE(lets_in(claim("b", "b", 3)));
  member.now.clock += reading.floor;
  CHECK(lets_in(claim("b", "b", 3)));
}

TEST_CASE("member rules: while it is guarded, only who is inside gets in") {
  NodeRules member;
  member.now.quarantine = std::chrono::seconds(5);
  const auto refused = std::get<Refused>(member.vote(claim("a", "a"), hour, true));
  CHECK(refused.why == Refusal::Reason::held);
  CHECK(refused.ask_again == milliseconds(5000));
  CHECK(refused.waiting == 1);
  CHECK(member.rejoin(claim("b", "b"), hour) == hour);
  CHECK(member.fence_of(member.vote(claim("b2", "b/i"), hour + 1)) == hour);
  CHECK(member.raise("b", hour + 2));
  member.release("b2");
  member.release("b");
  CHECK(member.told.said.empty());
  CHECK(member.table.stored.holds.empty());
  member.now.quarantine = microseconds(0);
  member.table.admit_waiters(member.now, member.told);
  CHECK(member.table.stored.find_hold({"a"}) != nullptr);
}

TEST_CASE("member rules: on one of several servers a provisional grant ends after two seconds") {
  NodeRules member;
  member.vote(claim("a", "a"), hour);
  member.vote(claim("b", "b"), hour, true);
  member.release("a");
  CHECK(member.table.stored.find_hold({"b"})->lease == milliseconds(2'000));
}

TEST_CASE("server rules: an unsure release of nothing makes a late acquire of that token fail") {
  ServerRules server;
  CHECK(server.release("a", {true, false, milliseconds(10'000)}) == Released::not_held);
  const auto refused = std::get<Refused>(server.acquire(claim("a", "a"), true));
  CHECK(refused.why == Refusal::Reason::gone);
  REQUIRE(std::holds_alternative<Granted>(server.acquire(claim("b", "b"))));
  CHECK(server.table.stored.live_holds({server.now.clock, server.now.clock}).size() == 1);
}

TEST_CASE("server rules: force throws out one fence or everybody, and lets the queue in") {
  ServerRules server;
  const auto a = std::get<Granted>(server.acquire(claim("a", "a", 2)));
  server.acquire(claim("a2", "a/x", 2));
  server.acquire(claim("b", "b", 2));
  server.acquire(claim("w", "w", 2), true);
  server.told.said.clear();
  CHECK(server.table.force(a.fence, {}, server.now, server.told).size() == 2);
  REQUIRE(server.told.said.size() == 1);
  CHECK(std::holds_alternative<GrantMessage>(server.told.said[0]));
  CHECK(server.table.force({}, {}, server.now, server.told).size() == 2);
  CHECK(server.table.stored.holds.empty());
}

TEST_CASE("server rules: a waiter to which nobody listens keeps its place for a second") {
  for (const int after : {999, 1'000}) {
    ServerRules server;
    server.acquire(claim("a", "a"));
    server.acquire(claim("b", "b"), true);
    server.told.nobody_listens = true;
    server.release("a");
    server.now.clock += milliseconds(after);
    const auto other = server.acquire(claim("c", "c"));
    CHECK(std::holds_alternative<Granted>(other) == (after == 1'000));
    const auto late = server.acquire(claim("b", "b"));
    CHECK(std::holds_alternative<Granted>(late) == (after == 999));
  }
}

TEST_CASE("server rules: a waiter without room must live to keep out one that has room") {
  ServerRules server;
  server.acquire(claim("r", "r", 0));
  server.acquire(claim("w", "w"), true);
  server.acquire(claim("w2", "w2"), true);
  CHECK(server.told.said.empty());
  server.acquire(claim("r2", "r2", 0), true);
  CHECK(server.told.said == std::vector<Message>{NextMessage{milliseconds(10'000)}});
  server.told.nobody_listens = true;
  const auto refused = std::get<Refused>(server.acquire(claim("r3", "r3", 0)));
  CHECK(refused.ask_again == milliseconds(1'000));
  server.now.clock += milliseconds(1'000);
  CHECK(server.fence_of(server.acquire(claim("r2", "r2", 0), true)) != 0);
}
