// Redis only: permissions, lost data, and the server's clock.

#include <algorithm>
#include <iterator>
#include <regex>
#include <set>

#include "base/error.hpp"
#include "engines.hpp"
#include "redis/lock_script.hpp"
#include "support/clock_control.hpp"
#include "support/eventually.hpp"
#include "support/one_of_tries.hpp"

namespace dlock::test {
namespace {

using std::chrono::seconds;

/// All commands of the script and the client. All exist in Redis 6.2, and a user needs each.
const std::set<std::string> needed_commands{
    "eval",      "evalsha", "multi", "exec",  "subscribe", "unsubscribe", "publish",
    "exists",    "time",    "get",   "set",   "pexpire",   "pttl",        "hget",
    "hgetall",   "hset",    "hdel",  "hlen",  "zadd",      "zrem",        "zrange",
    "zrevrange", "zscore",  "zrank", "zcard", "scan"};

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
  well = well && holder->evict(held.key, std::nullopt, evictor, soon()).size() == 1;
  well = well && news(*waiting, next, Wake::Reason::granted) && renew(*waiting, next);
  return well && release(*waiting, next) == Released::yes && !renew(*waiting, next);
}

bool goes_well(const std::function<StorePtr()>& open) {
  try {
    return whole_day(open);
  } catch (const Error&) {
    return false;
  }
}

template <typename Work>
Error error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no Error");
  return Error(ErrorKind::bug, "");
}

bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

TEST_CASE("a user needs these commands and no more, and nothing outside of the prefix") {
  Guarded guarded;
  guarded.allow(minimal_acl());
  CHECK(goes_well([&] { return guarded.open(); }));
  Endpoint other = endpoint_at(guarded.engine.server.address());
  other.database = 1;
  other.user = "u";
  other.password = "pw";
  CHECK(error_of([&] { enters(*redis_store(other), claim_on("k")); }).kind() == ErrorKind::denied);
}

TEST_CASE("the script and the client use no command that is younger than Redis 6.2") {
  RedisEngine engine;
  engine.server.command({"CONFIG", "RESETSTAT"});
  REQUIRE(goes_well([&] { return engine.open(); }));
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
  const Claim held = claim_on("k"), next = claim_on("k");
  granted(*holder, held);
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
  const Error error = error_of([&] { store->acquire(claim, {true, {}}, soon()); });
  CHECK(error.kind() == ErrorKind::denied);
  CHECK(says(error, "channel"));
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
  const Claim claim = claim_on("k", milliseconds(1000)), next = claim_on("k");
  granted(*store, claim);
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
  const Claim claim = claim_on("k", milliseconds(1000)), next = claim_on("k");
  granted(*store, claim);
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
    const Error error = error_of([&] { second->acquire(claim_on("new"), {wait, {}}, soon()); });
    CHECK(error.kind() == ErrorKind::unavailable);
    CHECK(says(error, "out of memory"));
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
}  // namespace dlock::test
