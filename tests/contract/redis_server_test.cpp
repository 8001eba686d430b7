#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "redis/lock_script.hpp"
#include "support/fault_proxy.hpp"

// Redis only: permissions, lost data, and the server's clock.

namespace dlock::test {
namespace {

using std::chrono::seconds;

/// All commands of the script and the client. All exist in Redis 6.2, and a user needs each.
const std::set<std::string> needed_commands{
    "eval",      "evalsha", "multi", "exec",  "subscribe", "unsubscribe", "publish",
    "exists",    "time",    "get",   "set",   "pexpire",   "pttl",        "hget",
    "hgetall",   "hset",    "hdel",  "hlen",  "zadd",      "zrem",        "zrange",
    "zrevrange", "zscore",  "zrank", "zcard", "scan",      "expire",      "append"};

std::vector<std::string> words(std::initializer_list<std::string> first,
                               const std::set<std::string>& rest, const std::string& before) {
  std::vector<std::string> all(first);
  for (const auto& each : rest) all.push_back(before + each);
  return all;
}

/// A server with a user "u" that has exactly the rights of `rules`.
struct Guarded {
  RedisEngine engine;

  void allow(const std::vector<std::string>& rules) {
    std::vector<std::string> line{"ACL", "SETUSER", "u", "reset", "on", ">pw"};
    line.insert(line.end(), rules.begin(), rules.end());
    REQUIRE(engine.server.command(line).text == "OK");
  }
  StorePtr open() {
    Endpoint endpoint = endpoint_at(engine.server.address());
    endpoint.user = "u";
    endpoint.password = "pw";
    return redis_store(endpoint);
  }
};

const std::vector<std::string> all_but_channels{"~*", "+@all", "resetchannels"};
std::vector<std::string> minimal_acl() {
  return words({"-@all", "~dlock:*", "resetchannels", "&dlock:*"}, needed_commands, "+");
}

/// Does all that a client does: acquire, wait, get a hand-over, renew, release, evict, inspect,
/// with dead entries of other clients in the way. Returns whether all of it worked.
bool whole_day(const std::function<StorePtr()>& open) {
  const auto holder = open(), waiting = open();
  auto gone = open();
  Claim held = claim_on("k"), next = claim_on("k"), passed = claim_on("k");
  bool well = enters(*holder, held);
  well = well && renew(*holder, held) && enters(*holder, claim_of(held.owner.text + "/i", "k"));
  well = well && !enters(*holder, claim_on("k"));
  queue_up(*gone, passed);
  const Ticket ticket = queue_up(*waiting, next);
  well = well && refused(*waiting, next, {true, ticket}).ahead == 1;
  well = well && release(*gone, passed) == Released::left_queue;
  well = well && holder->inspect({{held.key}, {"*"}}, soon()).at(0).waiters.size() == 1;
  well = well && holder->evict(held.key, {std::nullopt, evictor}, soon()).size() == 1;
  well = well && news(*waiting, next, Wake::Reason::granted) && renew(*waiting, next);
  return well && release(*waiting, next) == Released::yes && !renew(*waiting, next);
}

TEST_CASE("a user needs these commands and no more, and nothing outside of the prefix") {
  Guarded guarded;
  guarded.allow(minimal_acl());
  CHECK(without_error([&] { return whole_day([&] { return guarded.open(); }); }));
  Endpoint other = endpoint_at(guarded.engine.server.address());
  other.database = 1;
  other.user = "u";
  other.password = "pw";
  CHECK(fails([&] { enters(*redis_store(other), claim_on("k")); }, ErrorKind::denied));
}

TEST_CASE("the script and the client use no command that is younger than Redis 6.2") {
  RedisEngine engine;
  engine.server.command({"CONFIG", "RESETSTAT"});
  REQUIRE(without_error([&] { return whole_day([&] { return engine.open(); }); }));
  std::set<std::string> used;
  const std::string stats = engine.server.command({"INFO", "commandstats"}).text;
  const std::regex in_stats("cmdstat_([^:]+):"), in_script("call\\('([A-Z]+)'");
  const std::string script(lock_script);
  const auto collect = [&](const std::string& text, const std::regex& pattern) {
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
      std::string name = (*at)[1];
      std::ranges::transform(name, name.begin(),
                             [](char c) { return static_cast<char>(std::tolower(c)); });
      used.insert(name);
    }
  };
  collect(stats, in_stats);
  collect(script, in_script);
  for (const char* ours : {"config", "config|resetstat", "info", "client", "client|setname"}) {
    used.erase(ours);  // the test's own commands, and one that may be refused
  }
  CHECK(used == needed_commands);
  for (const auto& command : used) {
    CAPTURE(command);
    const Reply docs = engine.server.command({"COMMAND", "DOCS", command});
    if (docs.kind == Reply::Kind::error) continue;  // 6.2 lacks COMMAND DOCS, has all these
    REQUIRE(docs.items.size() == 2);
    const auto& facts = docs.items[1].items;
    const auto since = std::ranges::find(facts, "since", &Reply::text);
    REQUIRE(since != facts.end());
    CHECK((since + 1)->text <= "6.2.0");
  }
}

TEST_CASE("a user without channels can release: hold and queue are safe") {
  Guarded guarded;
  guarded.allow(all_but_channels);
  const auto holder = guarded.open(), waiting = guarded.engine.open();
  const Claim held = taken(*holder, claim_on("k")), next = claim_on("k");
  queue_up(*waiting, next);
  CHECK(release(*holder, held) == Released::yes);
  const KeyState state = state_of(*holder, "k");
  CHECK(state.holders.empty());
  CHECK(state.waiters.size() == 1);
  CHECK(granted(*waiting, next, {true, {}}).lease.length == next.ttl);
}

TEST_CASE("a user without channels is told so when it waits, and stands in no queue") {
  Guarded guarded;
  guarded.allow(all_but_channels);
  const auto holder = guarded.engine.open(), store = guarded.open();
  granted(*holder, claim_on("k"));
  const Claim claim = claim_on("k");
  const auto waits = [&] { store->acquire(claim, {true, {}}, soon()); };
  CHECK(fails(waits, ErrorKind::denied, "channel"));
  CHECK(state_of(*holder, "k").waiters.empty());
  CHECK(release(*store, claim) == Released::not_held);
}

TEST_CASE("every key expires, and after the lease all but the fence is gone") {
  RedisEngine engine;
  const auto check = [&] {
    for (const Reply& key : engine.server.command({"KEYS", "*"}).items) {
      CAPTURE(key.text);
      const auto left = engine.server.command({"PTTL", key.text}).number;
      CHECK(left != -1);
    }
  };
  const auto holder = engine.open(), waiting = engine.open();
  Claim held = claim_on("k"), floored = claim_on("f", milliseconds(100));
  floored.floor = milliseconds(300);
  granted(*holder, held);
  check();
  Claim next = claim_on("k", seconds(12));
  queue_up(*waiting, next);
  check();
  renew(*holder, held);
  check();
  release(*holder, held);
  check();
  CHECK(let_in(*waiting, next));
  check();
  granted(*holder, floored);
  check();
  release(*holder, floored);
  check();
  CHECK(litter_of(engine.server) != "");
  CHECK(eventually([&] { return litter_of(engine.server) == ""; }));
  CHECK(engine.server.command({"TTL", "dlock:{k}:fence"}).number > 6 * 86400);
}

TEST_CASE("fences grow although the server's clock steps back") {
  ShimClock clock;
  RedisEngine engine(under(clock));
  const auto store = engine.open();
  Fence last;
  for (const seconds step : {seconds(0), seconds(-60), seconds(0), seconds(30), seconds(-3600)}) {
    clock.advance(step);
    const Claim claim = claim_on("k");
    const Fence fence = granted(*store, claim).fence;
    CHECK(fence > last);
    last = fence;
    release(*store, claim);
  }
}

TEST_CASE("fences grow although the server forgets everything") {
  RedisEngine engine;
  const auto store = engine.open();
  Fence last;
  for (int i = 0; i < 5; ++i) {
    const Claim claim = claim_on("k");
    const Fence fence = granted(*store, claim).fence;
    CHECK(fence > last);
    last = fence;
    engine.server.command({"FLUSHALL"});
    CHECK(!renew(*store, claim));
  }
}

TEST_CASE("a server clock that steps back a minute costs at most one lease more") {
  ShimClock clock;
  RedisEngine engine(under(clock));
  const auto store = engine.open();
  const Claim claim = taken(*store, claim_on("k", milliseconds(1000))), next = claim_on("k");
  clock.advance(seconds(-60));
  const Refusal refusal = refused(*store, next);
  CHECK(refusal.ask_again_in <= milliseconds(1000));
  CHECK(*refusal.held_by.at(0).lease_left <= milliseconds(1000));
  clock.advance(milliseconds(900));
  CHECK(!enters(*store, next));
  clock.advance(milliseconds(101));
  CHECK(enters(*store, next));
}

TEST_CASE("a server clock that steps forward ends the lease, and the holder is told") {
  ShimClock clock;
  RedisEngine engine(under(clock));
  const auto store = engine.open();
  const Claim claim = taken(*store, claim_on("k", milliseconds(1000))), next = claim_on("k");
  clock.advance(seconds(60));
  CHECK(enters(*store, next));
  CHECK(!renew(*store, claim));
}

/// The server answers once the data are on the disk.
TEST_CASE("a server with a slow disk: what its writes take is taken from the lease") {
  constexpr milliseconds slow{400};
  RedisEngine engine({.config = {"appendonly yes", "appendfsync always"}});
  const auto store = engine.open();
  const Claim claim = claim_on("k", milliseconds(9000));
  engine.server.command({"DEBUG", "AOF-FLUSH-SLEEP", std::to_string(microseconds(slow).count())});
  const auto counts_the_write = [&](const Grant& grant) {
    return grant.lease.valid_until <= later(BootClock::now(), claim.ttl - slow);
  };
  CHECK(counts_the_write(granted(*store, claim)));
  CHECK(counts_the_write(renew(*store, claim).value()));
}

TEST_CASE("a server out of memory lets holders renew and release, and says why it grants nothing") {
  RedisEngine engine;
  const auto store = engine.open(), second = engine.open(), waiting = engine.open();
  Claim held = claim_on("k"), quiet = claim_on("q"), next = claim_on("k");
  Claim floored = claim_on("f");
  floored.floor = long_ttl;
  granted(*store, held);
  granted(*store, quiet);
  granted(*store, floored);
  queue_up(*waiting, next);
  engine.server.command({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  engine.server.command({"CONFIG", "SET", "maxmemory", "1mb"});
  for (const bool wait : {false, true}) {
    const auto asks = [&] { second->acquire(claim_on("new"), {wait, {}}, soon()); };
    CHECK(fails(asks, ErrorKind::unavailable, "out of memory"));
  }
  CHECK(renew(*store, quiet).has_value());
  CHECK(renew(*store, held).has_value());
  CHECK(renew(*store, floored).has_value());
  CHECK(release(*store, quiet) == Released::yes);
  CHECK(release(*store, floored) == Released::yes);
  CHECK(release(*store, held) == Released::yes);
  CHECK(let_in(*waiting, next));
  CHECK(release(*waiting, next) == Released::yes);
}

/// Whether a LeaseRenewer kept a hold for three leases, and no lease ended before safe_until().
bool promises_what_is_so() {
  RedisEngine engine;
  const auto store = engine.open();
  const Claim claim = claim_on("k", milliseconds(4500));
  LeaseRenewer keeper(*store, {{claim, granted(*store, claim)}});
  const auto wall_at_boot = wall_now().time_since_epoch() - BootClock::now().time_since_epoch();
  std::set<std::string> leases;
  while (leases.size() < 3) {
    const auto safe = keeper.safe_until();
    const Reply value = engine.server.command({"HGET", "dlock:{k}", claim.token.text});
    if (value.kind != Reply::Kind::text) return false;
    leases.insert(value.text);
    const microseconds at(std::stoll(value.text.substr(4)));
    const auto expires = at + claim.ttl - wall_at_boot;
    CHECK(safe.time_since_epoch() <= expires);
  }
  return true;
}

TEST_CASE("what a keeper promises ends before the entry on the server does") {
  // On a busy machine, such a short lease may be lost, but not again and again.
  CHECK(in_one_of(3, promises_what_is_so));
}

}  // namespace

namespace {

using Acquirer = LockAcquirer<RedisEngine>;

std::string owner_inside(Store& store, const std::string& key) {
  const KeyState state = state_of(store, key);
  return state.holders.empty() ? "" : state.holders[0].owner;
}

/// Waits until there is a holder; returns its owner.
std::string first_inside(Store& store, const std::string& key) {
  std::string owner;
  REQUIRE(eventually([&] {
    owner = owner_inside(store, key);
    return !owner.empty();
  }));
  return owner;
}

}  // namespace

TEST_CASE("waiters whose connections are cut while the lock is released keep their order") {
  RedisEngine engine;
  const auto holder = engine.open(), watcher = engine.open();
  constexpr std::size_t count = 10;
  std::size_t in_order = 0;
  // On a busy machine, a waiter may reconnect after its moment.
  for (int attempt = 0; attempt < 5 && in_order < count; ++attempt) {
    const std::string key = "k" + std::to_string(attempt);
    const Claim held = taken(*holder, claim_on(key));
    std::vector<Claim> claims;
    std::list<Acquirer> waiters;
    for (std::size_t i = 0; i < count; ++i) {
      claims.push_back(claim_on(key));
      waiters.emplace_back(engine, std::vector{claims.back()});
      REQUIRE(eventually([&] { return state_of(*watcher, key).waiters.size() == i + 1; }));
    }
    REQUIRE(eventually([&] {
      return std::all_of(waiters.begin(), waiters.end(),
                         [](const Acquirer& each) { return each.listener.listens(); });
    }));
    engine.server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
    release(*holder, held);
    for (in_order = 0; in_order < count; ++in_order) {
      const Claim& next = claims[in_order];
      CAPTURE(in_order);
      if (first_inside(*watcher, key) != next.owner.text) break;
      const auto won = had(waiters.front().result());
      REQUIRE(won.size() == 1);
      CHECK(won[0].claim.token == next.token);
      release(*waiters.front().store, next);
      waiters.pop_front();
    }
  }
  CHECK(in_order == count);
}

namespace {

TEST_CASE("a hold that a later version may write is refused by each request, and stays as it is") {
  RedisEngine engine;
  const RedisServer& server = engine.server;
  const auto now = server.command({"TIME"});
  const std::string us = std::to_string(std::stoll(now.items.at(0).text) * 1'000'000);
  const std::string token = "549b880072e0055b:8e216dfe58f35c57cea4210f0fc42c66";
  const std::string value =
      "x 0 " + us + " " + us + " " + us + " 60000 60000 1 549b880072e0055b vm 9930 root bash L";
  REQUIRE(server.command({"HSET", "dlock:{k}", token, value}).number == 1);
  REQUIRE(server.command({"PEXPIRE", "dlock:{k}", "600000"}).number == 1);

  const auto store = engine.open();
  const Claim other = claim_on("k"), itself = claim_named({"k"}, {token});
  const std::vector<std::function<void()>> requests{
      [&] { store->acquire(other, {}, soon()); },
      [&] {
        store->acquire(other, {true, {}}, soon());
      },
      [&] { renew(*store, itself); },
      [&] { release(*store, itself); },
      [&] { release(*store, other); },
      [&] {
        store->evict(LockKey{"k"}, {std::nullopt, evictor}, soon());
      },
      [&] {
        store->evict(LockKey{"k"}, {Fence{std::stoll(us)}, evictor}, soon());
      },
      [&] {
        store->inspect({{LockKey{"k"}}, {}}, soon());
      },
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    CHECK(fails(requests[i], ErrorKind::wrong_data));
  }
  // Its neighbours can be listed all the same.
  granted(*store, claim_on("neighbour"));
  CHECK(store->inspect({{}, {"*"}}, soon()).size() == 1);

  CHECK(server.command({"HLEN", "dlock:{k}"}).number == 1);
  CHECK(server.command({"HGET", "dlock:{k}", token}).text == value);
  CHECK(server.command({"PTTL", "dlock:{k}"}).number > 0);
  CHECK(server.command({"KEYS", "dlock:{k}:*"}).items.empty());
}

}  // namespace

}  // namespace dlock::test
