#include "rule/lock_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "rule_support.hpp"

using namespace dlock;
using dlock::test::claim;

namespace {

/// Waiters that listen, except for those in `deaf`.
struct Heard final : WaiterNotifier {
  std::map<std::string, bool> deaf;
  std::vector<std::pair<std::string, Message>> said;
  bool wake(const WaiterEntry& waiter, const Message& message) override {
    if (deaf[waiter.token.text]) return false;
    said.emplace_back(waiter.token.text, message);
    return true;
  }
};

struct Rules {
  LockTable table;
  Heard heard;
  microseconds clock{1'000'000};
  microseconds wall{5'000'000};

  Now now() const { return {clock, wall}; }
  void pass(milliseconds span) {
    clock += span;
    wall += span;
  }
  std::variant<Granted, Refused> ask(const Claim& claim, bool wait = false,
                                     std::optional<Ticket> ticket = {}) {
    return table.acquire(claim, {wait, ticket}, {}, now(), heard);
  }
  Granted granted(const Claim& claim, bool wait = false) {
    const auto answer = ask(claim, wait);
    REQUIRE(std::holds_alternative<Granted>(answer));
    return std::get<Granted>(answer);
  }
  Refused refused(const Claim& claim, bool wait = false, std::optional<Ticket> ticket = {}) {
    const auto answer = ask(claim, wait, ticket);
    REQUIRE(std::holds_alternative<Refused>(answer));
    return std::get<Refused>(answer);
  }
  Released release(const std::string& token, ReleaseMode mode = ReleaseMode::normal) {
    return table.release({token}, mode, now(), heard);
  }
  std::optional<milliseconds> renew(const std::string& token,
                                    std::optional<milliseconds> ttl = {}) {
    return table.renew({token}, ttl, now(), heard);
  }
};

std::size_t grants_in(const Heard& heard) {
  std::size_t count = 0;
  for (const auto& [token, message] : heard.said) {
    if (std::holds_alternative<GrantMessage>(message)) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("rules: a fence is the wall clock, and one more than the last where that is behind") {
  Rules rules;
  CHECK(rules.granted(claim("a", "a")).fence.value == 5'000'000);
  rules.release("a");
  rules.wall = microseconds(1);
  CHECK(rules.granted(claim("b", "b")).fence.value == 5'000'001);
}

TEST_CASE("rules: an owner below a holder re-enters with its fence, a stranger does not") {
  Rules rules;
  const auto outer = rules.granted(claim("t1", "a"));
  rules.pass(milliseconds(5));
  CHECK(rules.granted(claim("t2", "a/b")).fence == outer.fence);
  CHECK(rules.table.find_hold({"t2"})->owner.text == "a");
  CHECK(rules.refused(claim("t3", "ab")).why == Refusal::Reason::held);
  rules.release("t1");
  CHECK(rules.refused(claim("t3", "ab")).why == Refusal::Reason::held);
  rules.release("t2");
  rules.granted(claim("t3", "ab"));
}

TEST_CASE("rules: who asks for fewer than are inside beside it is told to upgrade, never queued") {
  Rules rules;
  rules.granted(claim("r1", "a", 0));
  rules.granted(claim("r2", "b", 0));
  CHECK(rules.refused(claim("w", "a/x", 1), true).why == Refusal::Reason::upgrade);
  CHECK(rules.table.queue.empty());
  rules.granted(claim("w", "a/x", 2));
}

TEST_CASE("rules: a waiter whose request has become an upgrade asks at once, and blocks nobody") {
  Rules rules;
  rules.granted(claim("x", "x"));
  rules.refused(claim("r1", "a", 0), true);
  rules.refused(claim("r2", "b", 0), true);
  rules.refused(claim("w", "a/x", 1), true);
  rules.refused(claim("r3", "c", 0), true);
  rules.release("x");
  const std::pair<std::string, Message> ask_at_once{"w", NextMessage{milliseconds(0)}};
  CHECK(std::count(rules.heard.said.begin(), rules.heard.said.end(), ask_at_once) == 1);
  CHECK(rules.table.find_hold({"r3"}) != nullptr);
  CHECK(rules.table.queue.empty());
  CHECK(rules.refused(claim("w", "a/x", 1), true).why == Refusal::Reason::upgrade);
}

TEST_CASE("rules: a request that becomes an upgrade by the grants it makes is refused as one") {
  Rules rules;
  const auto lease = rules.granted(claim("x", "x")).lease;
  rules.refused(claim("r1", "a", 0), true);
  rules.refused(claim("r2", "b", 0), true);
  rules.refused(claim("w", "a/x", 1), true);
  rules.pass(lease + milliseconds(1));
  CHECK(rules.refused(claim("w", "a/x", 1), true).why == Refusal::Reason::upgrade);
  CHECK(rules.table.queue.empty());
}

TEST_CASE("rules: the smallest limit among those inside and the one who asks decides") {
  Rules rules;
  rules.granted(claim("a", "a", 3));
  rules.granted(claim("b", "b", 2));
  CHECK(rules.refused(claim("c", "c", 3)).holds.size() == 2);
  rules.release("b");
  CHECK(rules.refused(claim("c", "c", 1)).why == Refusal::Reason::held);
  rules.granted(claim("c", "c", 2));
}

TEST_CASE("rules: the same acquire again is the same hold with a fresh lease") {
  Rules rules;
  const auto once = rules.granted(claim("a", "a"));
  rules.pass(milliseconds(9'000));
  CHECK(rules.granted(claim("a", "a")) == once);
  CHECK(rules.table.holds.size() == 1);
  rules.pass(milliseconds(9'000));
  CHECK(rules.refused(claim("b", "b")).ask_again == milliseconds(1'000));
}

TEST_CASE("rules: a lease ends, and is neither renewed nor released after that") {
  Rules rules;
  rules.granted(claim("a", "a"));
  rules.pass(milliseconds(10'000));
  CHECK(!rules.renew("a"));
  CHECK(rules.release("a") == Released::not_held);
  CHECK(rules.table.holds.empty());
}

TEST_CASE("rules: a renewal without a length takes the grant's own") {
  Rules rules;
  rules.granted(claim("a", "a"));
  CHECK(rules.renew("a", milliseconds(50)) == milliseconds(50));
  CHECK(rules.renew("a") == milliseconds(10'000));
}

TEST_CASE("rules: a clock that goes back costs at most one lease more") {
  Rules rules;
  rules.pass(milliseconds(60'000));
  rules.granted(claim("a", "a"));
  rules.clock -= std::chrono::seconds(60);
  CHECK(rules.refused(claim("b", "b")).ask_again == milliseconds(10'000));
  rules.pass(milliseconds(10'000));
  rules.granted(claim("b", "b"));
}

TEST_CASE(
    "rules: waiters are let in by ticket when the holder leaves, one provisional grant each") {
  Rules rules;
  rules.granted(claim("a", "a"));
  const auto b = rules.refused(claim("b", "b"), true);
  const auto c = rules.refused(claim("c", "c"), true);
  CHECK(b.ahead == 0);
  CHECK(c.ahead == 1);
  CHECK(c.waiting == 2);
  CHECK(b.ticket < c.ticket);
  CHECK(rules.release("a") == Released::yes);
  REQUIRE(rules.heard.said.size() == 2);
  CHECK(rules.heard.said[0].first == "b");
  CHECK(std::get<GrantMessage>(rules.heard.said[0].second).lease == milliseconds(6'000));
  CHECK(rules.heard.said[1].first == "c");
  CHECK(std::get<NextMessage>(rules.heard.said[1].second).in == milliseconds(6'000));
  CHECK(rules.table.find_hold({"b"})->flag == Flag::provisional);
  CHECK(rules.renew("b") == milliseconds(10'000));
  CHECK(rules.table.find_hold({"b"})->flag == Flag::held);
}

TEST_CASE("rules: a provisional grant that nobody confirms ends after six seconds") {
  Rules rules;
  rules.granted(claim("a", "a"));
  rules.refused(claim("b", "b"), true);
  rules.refused(claim("c", "c"), true);
  rules.release("a");
  rules.pass(milliseconds(5'999));
  rules.refused(claim("c", "c"), true);
  rules.pass(milliseconds(1));
  rules.granted(claim("c", "c"), true);
  CHECK(!rules.renew("b"));
}

TEST_CASE("rules: after a grant that nobody confirmed the next ones last a second, until one is") {
  Rules rules;
  rules.granted(claim("a", "a"));
  for (const char* const name : {"b", "c", "d", "e", "f"}) {
    rules.refused(claim(name, name), true);
  }
  rules.release("a");
  rules.pass(milliseconds(6'000));
  rules.refused(claim("f", "f"), true);
  CHECK(rules.table.find_hold({"c"})->lease == milliseconds(1'000));
  rules.pass(milliseconds(1'000));
  rules.refused(claim("f", "f"), true);
  CHECK(rules.table.find_hold({"d"})->lease == milliseconds(1'000));
  CHECK(rules.renew("d") == milliseconds(10'000));
  rules.release("d");
  CHECK(rules.table.find_hold({"e"})->lease == milliseconds(6'000));
}

TEST_CASE("rules: a grant that nobody confirmed is forgotten after half a minute") {
  for (const int after : {29'999, 30'000}) {
    Rules rules;
    rules.granted(claim("a", "a"));
    for (const char* const name : {"b", "c", "d"}) rules.refused(claim(name, name), true);
    rules.release("a");
    rules.pass(milliseconds(6'000 + after));
    rules.refused(claim("d", "d"), true);
    CHECK(rules.table.find_hold({"c"})->lease == milliseconds(after < 30'000 ? 1'000 : 6'000));
  }
}

TEST_CASE("rules: a grant that nobody confirmed leaves no floor, one that was used does") {
  for (const bool used : {false, true}) {
    Rules rules;
    rules.granted(claim("a", "a"));
    Claim with_floor = claim("b", "b");
    with_floor.floor = milliseconds(20'000);
    rules.refused(with_floor, true);
    rules.release("a");
    if (used) CHECK(rules.release("b") == Released::yes);
    rules.pass(milliseconds(6'000));
    CHECK(rules.table.live_holds(rules.now()).empty() == !used);
    CHECK(std::holds_alternative<Granted>(rules.ask(claim("c", "c"))) == !used);
  }
}

TEST_CASE("rules: the first waiter knows the end of a hand-over, however many came before it") {
  Rules rules;
  rules.granted(claim("holder", "holder"));  // for ten seconds, as the waiters first know
  std::vector<std::string> line;
  for (int i = 0; i < 20; ++i) {
    line.push_back("w" + std::to_string(100 + i));
    Claim waiter = claim(line.back(), line.back());
    waiter.ttl = milliseconds(5000);
    rules.refused(waiter, true);
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

TEST_CASE("rules: a waiter that does not listen, or was silent for 75 s, is passed over") {
  Rules rules;
  rules.granted(claim("a", "a"));
  rules.refused(claim("silent", "s"), true);
  rules.pass(milliseconds(9'000));
  for (int i = 0; i < 8; ++i) {
    rules.renew("a");
    rules.pass(milliseconds(9'000));
  }
  rules.refused(claim("deaf", "d"), true);
  rules.refused(claim("c", "c"), true);
  rules.heard.deaf["deaf"] = true;
  rules.heard.said.clear();
  rules.release("a");
  REQUIRE(rules.heard.said.size() == 1);
  CHECK(rules.heard.said[0].first == "c");
  CHECK(rules.table.queue.empty());
}

TEST_CASE("rules: a request that does not wait is refused while anybody waits, room or not") {
  Rules rules;
  rules.granted(claim("r", "r", 0));
  rules.refused(claim("w", "w", 1), true);
  CHECK(rules.refused(claim("r2", "r2", 0)).ahead == 1);
  CHECK(rules.table.find_waiter({"r2"}) == rules.table.queue.end());
}

TEST_CASE("rules: a ticket that is brought back gives the place back") {
  Rules rules;
  rules.granted(claim("a", "a"));
  const auto b = rules.refused(claim("b", "b"), true);
  rules.refused(test::claim("c", "c"), true);
  CHECK(rules.release("b") == Released::left_queue);
  CHECK(rules.refused(test::claim("b", "b"), true, b.ticket).ahead == 0);
  CHECK(rules.refused(claim("b", "b"), true).ticket == b.ticket);
}

TEST_CASE("rules: a released hold stays kept until its floor, without an owner") {
  Rules rules;
  Claim claim = test::claim("a", "a");
  claim.floor = milliseconds(3'000);
  rules.granted(claim);
  rules.pass(milliseconds(1'000));
  CHECK(rules.release("a") == Released::yes);
  CHECK(rules.release("a") == Released::not_held);
  CHECK(rules.refused(test::claim("x", "a/b")).ask_again == milliseconds(2'000));
  CHECK(rules.refused(claim).why == Refusal::Reason::gone);
  rules.pass(milliseconds(2'000));
  rules.granted(test::claim("x", "a/b"));
}

TEST_CASE("rules: a kept hold keeps out newcomers, and no owner that is inside") {
  Rules rules;
  const auto outer = rules.granted(claim("o", "a"));
  Claim inner = claim("i", "a/b");
  inner.floor = milliseconds(9'000);
  rules.granted(inner);
  rules.release("i");
  CHECK(rules.granted(claim("n", "a/c")).fence == outer.fence);
  CHECK(rules.refused(claim("s", "x", 0)).why == Refusal::Reason::held);
  rules.release("n");
  rules.release("o");
  CHECK(rules.refused(claim("l", "a/d")).why == Refusal::Reason::held);
  rules.pass(milliseconds(9'000));
  rules.granted(claim("s", "x"));
}

TEST_CASE("rules: a kept hold takes a seat from newcomers, and none from who is inside") {
  Rules rules;
  rules.granted(claim("a", "a", 3));
  rules.granted(claim("b", "b", 3));
  Claim inner = claim("i", "b/i", 3);
  inner.floor = milliseconds(9'000);
  rules.granted(inner);
  rules.release("i");
  rules.granted(claim("n", "a/n", 2));
  rules.release("n");
  CHECK(rules.refused(claim("c", "c", 3)).why == Refusal::Reason::held);
  CHECK(rules.refused(claim("u", "a/u", 1)).why == Refusal::Reason::upgrade);
  rules.release("b");
  rules.granted(claim("u", "a/u", 1));
  rules.release("u");
  rules.granted(claim("c", "c", 3));
}

TEST_CASE("rules: a floor outlives the lease, and can be ignored by a release") {
  Rules rules;
  Claim claim = test::claim("a", "a");
  claim.floor = milliseconds(15'000);
  rules.granted(claim);
  rules.pass(milliseconds(10'000));
  CHECK(rules.refused(test::claim("b", "b")).holds[0].flag == Flag::cooldown);
  rules.pass(milliseconds(5'000));
  rules.granted(claim);
  CHECK(rules.release("a", ReleaseMode::ignore_floor) == Released::yes);
  CHECK(rules.table.holds.empty());
}

TEST_CASE("rules: force throws out one fence or everybody, and lets the queue in") {
  Rules rules;
  const auto a = rules.granted(claim("a", "a", 2));
  rules.granted(claim("a2", "a/x", 2));
  rules.granted(claim("b", "b", 2));
  rules.refused(claim("w", "w", 2), true);
  const Who by{"h", 1, "u", "c", "l"};
  CHECK(rules.table.evict(a.fence, by, rules.now(), rules.heard).size() == 2);
  CHECK(grants_in(rules.heard) == 1);
  CHECK(rules.table.evict({}, by, rules.now(), rules.heard).size() == 2);
  CHECK(rules.table.live_holds(rules.now()).empty());
  CHECK(rules.table.evicted_by({"a2"}) == by);
  CHECK(rules.table.evicted_by({"w"}) == by);  // it had not confirmed yet
}

TEST_CASE("rules: readers behind a writer come in together once it has gone") {
  Rules rules;
  rules.granted(claim("w", "w"));
  for (const char* reader : {"r1", "r2", "r3"}) rules.refused(claim(reader, reader, 0), true);
  rules.release("w");
  CHECK(grants_in(rules.heard) == 3);
}

TEST_CASE("rules: a request looks at the whole queue, however many of its waiters are dead") {
  Rules rules;
  rules.granted(claim("a", "a"));
  for (int i = 0; i < 600; ++i) {
    const std::string token = "w" + std::to_string(i);
    rules.refused(claim(token, token), true);
    rules.heard.deaf[token] = i != 599;
  }
  rules.release("a");
  CHECK(rules.table.queue.empty());
  CHECK(grants_in(rules.heard) == 1);
}
