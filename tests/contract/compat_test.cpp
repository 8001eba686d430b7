// The keys of other libraries: what dlock writes there, and mutual exclusion with it.
// scripts/interop tests the same with the libraries themselves.

#include <algorithm>
#include <chrono>
#include <future>
#include <regex>
#include <thread>

#include "base/error.hpp"
#include "contract/compat_support.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

/// A lock of another client, as the library of this layout would write it.
void hold_as_library(const RedisServer& server, const WrittenLayout& row, const char* lease) {
  const std::string key = row.key;
  const std::string type = row.type;
  if (type == "string") {
    server.command({"SET", key, "5c5b8d1e7f0a4b3c9d2e1f0a5b6c7d8e"});
  } else if (type == "hash") {
    server.command({"HSET", key, "0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21:33", "1"});
  } else {
    const std::string member = "q0V3s9T0m1n2b3v4c5x6z7l8k9j0h1g2f3d4s5a6p7o=";
    server.command({"ZADD", key, "9999999999999", member, "9999999999999", "__write__"});
  }
  if (*lease != '\0') server.command({"PEXPIRE", key, lease});
}

long long pttl(const RedisServer& server, const std::string& key) {
  return server.command({"PTTL", key}).number;
}

/// Records the requests of a store to its server from the first byte, a line each. Scripts appear
/// by a word, the value that names the hold as `HOLD`, and an expiry on its own as `END`.
class Overheard {
 public:
  explicit Overheard(const std::string& layout, const Claim& claim)
      : proxy_(server_.address()),
        driver_(parse_layout(layout), false),
        claim_(claim),
        store(compat_store(layout, proxy_.address())) {}

  std::vector<std::string> lines() {
    std::vector<std::string> lines;
    const auto streams = proxy_.recorded();
    std::string_view bytes;
    if (!streams.empty()) bytes = streams.front();
    while (const auto size = bytes.empty() ? std::nullopt : message_size(bytes)) {
      std::string line;
      for (const std::string& word : request_words(bytes.substr(0, *size))) {
        line += (line.empty() ? "" : " ") + told(word);
      }
      lines.push_back(line);
      bytes.remove_prefix(*size);
    }
    return lines;
  }
  const RedisServer& server() const { return server_; }

 private:
  std::string told(const std::string& word) const {
    const HoldMark hold = driver_.layout().mark_of(claim_.token);
    const ScriptRun run = driver_.run("take", driver_.key_of(claim_.key), hold, claim_.ttl);
    if (word == run.sha1) return "<script>";
    if (word == run.text) return "<text>";
    if (word == hold.proof) return hold.proof == hold.written ? "HOLD" : "END";
    const bool ends_so = word.size() > hold.proof.size() && word.ends_with(hold.proof);
    return ends_so ? "HOLD" : word;
  }

  RedisServer server_;
  FaultProxy proxy_;
  LockDriver driver_;
  Claim claim_;

 public:
  StorePtr store;
};

std::vector<std::string> traffic_of_a_hold(const std::string& layout) {
  const Claim claim = claim_on("N", milliseconds(5000));
  Overheard overheard(layout, claim);
  granted(*overheard.store, claim);
  CHECK(overheard.store->renew(claim, {.granted = Fence{}}, soon()).grant);
  CHECK(release(*overheard.store, claim) == Released::yes);
  return overheard.lines();
}

}  // namespace

TEST_CASE("compat: a hold of a string is one script each time, by a client that shows itself") {
  const std::vector<std::string> expected{
      "CLIENT SETNAME dlock",
      "EVALSHA <script> 1 N take HOLD 5000 HOLD",
      "EVAL <text> 1 N take HOLD 5000 HOLD",
      "EVALSHA <script> 1 N renew HOLD 5000 HOLD",
      "EVALSHA <script> 1 N release HOLD 0 HOLD",
  };
  for (const char* layout : {"redis-py", "redlock", "node-redlock", "redlock-universal", "redsync",
                             "redislock", "redlock-py", "redlock-rb", "aioredlock", "rslock",
                             "distributedlock", "stackexchange", "phpredis"}) {
    CAPTURE(layout);
    CHECK(traffic_of_a_hold(layout) == expected);
  }
}

TEST_CASE("compat: prefixes stand before the name, and signals go out with the release") {
  const auto second = [](const std::vector<std::string>& lines) { return lines.at(1); };
  const auto last = [](const std::vector<std::string>& lines) { return lines.back(); };
  CHECK(second(traffic_of_a_hold("pottery")) == "EVALSHA <script> 1 redlock:N take HOLD 5000 HOLD");
  CHECK(second(traffic_of_a_hold("redlocknet")) ==
        "EVALSHA <script> 1 redlock:N take HOLD 5000 HOLD");
  CHECK(second(traffic_of_a_hold("redis-semaphore")) ==
        "EVALSHA <script> 1 mutex:N take HOLD 5000 HOLD");
  CHECK(second(traffic_of_a_hold("laravel:a:b")) == "EVALSHA <script> 1 a:bN take HOLD 5000 HOLD");
  const auto shedlock = traffic_of_a_hold("shedlock");
  CHECK(second(shedlock) == "EVALSHA <script> 1 job-lock:default:N take END 5000 HOLD");
  CHECK(last(shedlock) == "EVALSHA <script> 1 job-lock:default:N release END 0 HOLD");
  CHECK(second(traffic_of_a_hold("shedlock:x")) ==
        "EVALSHA <script> 1 job-lock:x:N take END 5000 HOLD");
  const auto spring = traffic_of_a_hold("spring:reg");
  CHECK(second(spring) ==
        "EVALSHA <script> 1 reg:N take HOLD 5000 HOLD reg-channel:reg:N reg-channel");
  CHECK(last(spring) ==
        "EVALSHA <script> 1 reg:N release HOLD 0 HOLD reg-channel:reg:N reg-channel");
  const auto python = traffic_of_a_hold("python-redis-lock");
  CHECK(second(python) == "EVALSHA <script> 2 lock:N lock-signal:N take HOLD 5000 HOLD");
  CHECK(last(python) == "EVALSHA <script> 2 lock:N lock-signal:N release HOLD 0 HOLD");
}

TEST_CASE("compat: a hold of Redisson's or Symfony's is one script each time") {
  const std::string keys = "2 N redisson_lock_queue:{N} ";
  const std::string end = " HOLD redisson_lock__channel:{N}";
  CHECK(traffic_of_a_hold("redisson") == std::vector<std::string>{
                                             "CLIENT SETNAME dlock",
                                             "EVALSHA <script> " + keys + "take HOLD 5000" + end,
                                             "EVAL <text> " + keys + "take HOLD 5000" + end,
                                             "EVALSHA <script> " + keys + "renew HOLD 5000" + end,
                                             "EVALSHA <script> " + keys + "release HOLD 0" + end,
                                         });
  const std::string fenced_keys = "3 N redisson_lock_queue:{N} redisson_lock_token:{N} ";
  const auto fenced = traffic_of_a_hold("redisson-fenced");
  CHECK(fenced.at(1) == "EVALSHA <script> " + fenced_keys + "take HOLD 5000" + end);
  CHECK(fenced.at(3) == "EVALSHA <script> " + fenced_keys + "renew HOLD 5000" + end);
  const auto symfony = traffic_of_a_hold("symfony");
  CHECK(symfony.at(1) == "EVALSHA <script> 1 N take HOLD 5000 HOLD");
  CHECK(symfony.at(3) == "EVALSHA <script> 1 N renew HOLD 5000 HOLD");
  CHECK(symfony.at(4) == "EVALSHA <script> 1 N release HOLD 0 HOLD");
}

TEST_CASE("compat: what names a hold is written as the readers of its layout parse it") {
  const Token token{"owner:00112233445566778899aabbccddeeff"};
  const auto written = [&](const char* layout) {
    return parse_layout(layout).mark_of(token).written;
  };
  CHECK(written("redis-py") == "ABEiM0RVZneImaq7zN3u_w");
  CHECK(written("symfony") == "ABEiM0RVZneImaq7zN3u_w");
  CHECK(written("redisson") == "00112233-4455-6677-8899-aabbccddeeff:1");
  const std::regex shedlock(
      R"(ADDED:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z@[^:@]+:00112233-4455-6677-8899-aabbccddeeff)");
  CHECK(std::regex_match(written("shedlock"), shedlock));
}

TEST_CASE("compat: each layout has its own key, with a lease, and leaves nothing but its signal") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    const RedisServer server;
    const auto store = compat_store(row.layout, server.address());
    const bool fenced = std::string(row.layout) == "redisson-fenced";
    const bool signals = std::string(row.layout) == "python-redis-lock";
    std::vector<Reply> left;
    bool in_time = false;
    // On a slow machine, the signal may have expired before the test looks for it.
    for (int tries = 0; tries < 10 && !in_time; ++tries) {
      server.command({"FLUSHALL"});
      const Claim claim = claim_on("N", milliseconds(20'000));
      const Grant grant = granted(*store, claim);
      CHECK(grant.fence.value == (fenced ? 1 : 0));
      CHECK(server.command({"TYPE", row.key}).text == row.type);
      const auto lease = pttl(server, row.key);
      CHECK(lease > 0);
      CHECK(lease <= 20'000);
      const auto released = BootClock::now();
      CHECK(release(*store, claim) == Released::yes);
      left = server.command({"KEYS", "*"}).items;
      if (signals) CHECK(pttl(server, "lock-signal:N") <= 1000);
      in_time = BootClock::now() - released <= milliseconds(900);
      CHECK(release(*store, claim) == Released::not_held);
      CHECK(server.command({"KEYS", "*"}).items.size() <= left.size());
    }
    CHECK(left.size() == (fenced || signals ? 1 : 0));
    if (fenced) CHECK(left.at(0).text == "redisson_lock_token:{N}");
  }
}

TEST_CASE("compat: a release sends what waiters of Spring and Redisson listen for") {
  for (const auto& [layout, channel, payload] :
       {std::tuple("spring:reg", "reg-channel:reg:N", "reg:N"),
        std::tuple("spring:reg", "reg-channel", "reg:N"),
        std::tuple("redisson", "redisson_lock__channel:{N}", "0")}) {
    const RedisServer server;
    RedisConnection listener(endpoint_at(server.address()));
    const std::vector<Request> subscribe{{"SUBSCRIBE", channel}};
    listener.exchange(subscribe, soon());
    const auto store = compat_store(layout, server.address());
    for (const bool by_force : {false, true}) {
      const Claim claim = claim_on("N");
      granted(*store, claim);
      if (by_force) {
        CHECK(store->evict(claim.key, {{}, evictor}, soon()).size() == 1);
      } else {
        CHECK(release(*store, claim) == Released::yes);
      }
      const auto message = listener.next_message(soon().deadline, -1);
      REQUIRE(std::holds_alternative<Published>(message));
      CHECK(std::get<Published>(message).payload == payload);
    }
  }
}

TEST_CASE("compat: a lock of the library refuses, and one of ours is renewed while it is ours") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    const RedisServer server;
    const auto store = compat_store(row.layout, server.address());
    hold_as_library(server, row, "");
    const Claim claim = claim_on("N", milliseconds(20'000));
    const Refusal refusal = refused(*store, claim);
    REQUIRE(refusal.held_by.size() == 1);
    CHECK(refusal.held_by[0].library != "");
    CHECK(!refusal.held_by[0].lease_left);
    // A foreign hold is neither renewed nor released, and an expired one is not recreated.
    CHECK(!store->renew(claim, {.granted = Fence{}}, soon()).grant);
    CHECK(release(*store, claim) == Released::not_held);
    CHECK(pttl(server, row.key) == -1);
    server.command({"DEL", row.key});
    CHECK(!store->renew(claim, {.granted = Fence{}}, soon()).grant);
    CHECK(server.command({"EXISTS", row.key}).number == 0);
    granted(*store, claim);
    server.command({"PEXPIRE", row.key, "9000"});
    CHECK(store->renew(claim, {.granted = Fence{}}, soon()).grant);
    CHECK(pttl(server, row.key) > 9000);
    // A second client of dlock cannot acquire it, but can evict it.
    const auto other = compat_store(row.layout, server.address());
    refused(*other, claim_on("N"));
    CHECK(other->evict(claim.key, {{}, evictor}, soon()).size() == 1);
    CHECK(other->evict(claim.key, {{}, evictor}, soon()).empty());
    CHECK(!store->renew(claim, {.granted = Fence{}}, soon()).grant);
  }
}

/// Checks that a key is refused for this reason, also by `inspect` unless it is not `listed`.
void check_left_alone(Store& store, const std::string& key, const std::string& reason,
                      bool listed = true) {
  CAPTURE(key);
  CHECK(fails([&] { store.acquire(claim_on(key), {}, soon()); }, ErrorKind::wrong_data, reason));
  CHECK(fails([&] { store.evict({key}, {{}, evictor}, soon()); }, ErrorKind::wrong_data, reason));
  const auto inspects = [&] { store.inspect({{LockKey{key}}, {}}, soon()); };
  if (listed) CHECK(fails(inspects, ErrorKind::wrong_data, reason));
}

TEST_CASE("compat: another kind of key is left alone, by all that asks for it") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    const RedisServer server;
    const auto store = compat_store(row.layout, server.address());
    server.command({"RPUSH", row.key, "x"});
    check_left_alone(*store, "N", "list");
    CHECK(server.command({"LLEN", row.key}).number == 1);
  }
}

TEST_CASE("compat: a sorted set that Symfony did not write is left alone, with all its members") {
  const RedisServer server;
  const auto store = compat_store("symfony", server.address());
  server.command({"ZADD", "scores", "1", "alice", "2", "bob"});
  check_left_alone(*store, "scores", "Symfony did not write");
  CHECK(server.command({"ZCARD", "scores"}).number == 2);
}

TEST_CASE("compat: what Redisson has that is no plain lock is told from one, and left alone") {
  const RedisServer server;
  const auto store = compat_store("redisson", server.address());
  server.command({"HSET", "rw", "mode", "read", "0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21:33", "1"});
  server.command({"HSET", "many", "a", "1", "b", "1"});
  server.command({"HSET", "user", "name", "alice"});
  server.command({"RPUSH", "redisson_lock_queue:{fair}", "x"});
  for (const auto& [key, what] :
       {std::pair("rw", "rw is a Redisson read/write lock"),
        std::pair("many", "many is a hash with several fields"),
        std::pair("user", "user is a hash that no client of Redisson wrote"),
        std::pair("fair", "fair lock")}) {
    check_left_alone(*store, key, what, server.command({"EXISTS", key}).number != 0);
  }
  CHECK(server.command({"HLEN", "rw"}).number == 2);
  CHECK(server.command({"HLEN", "user"}).number == 1);
}

TEST_CASE("compat: a fenced lock counts its grants, and no renewal or repeated request") {
  const RedisServer server;
  FaultProxy proxy(server.address());
  const auto store = compat_store("redisson-fenced", proxy.address());
  Claim claim = claim_on("N");
  CHECK(granted(*store, claim).fence.value == 1);
  CHECK(granted(*store, claim).fence.value == 1);
  CHECK(store->renew(claim, {.granted = Fence{}}, soon()).grant->fence.value == 1);
  release(*store, claim);
  claim.token = new_token(claim.owner);
  CHECK(granted(*store, claim).fence.value == 2);
}

TEST_CASE("compat: an answer that was lost costs neither the grant nor the release") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    const RedisServer server;
    FaultProxy proxy(server.address());
    const auto store = compat_store(row.layout, proxy.address());
    const Claim claim = claim_on("N");
    proxy.drop_replies(3);
    CHECK_THROWS_AS(store->acquire(claim, {}, briefly()), Error);
    proxy.heal();
    granted(*store, claim);
    CHECK(release(*store, claim) == Released::yes);
  }
}

TEST_CASE("compat: a late release does not touch the lock of the next holder") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    const RedisServer server;
    const auto store = compat_store(row.layout, server.address());
    const Claim claim = claim_on("N");
    granted(*store, claim);
    server.command({"DEL", row.key});
    hold_as_library(server, row, "20000");
    CHECK(release(*store, claim) == Released::not_held);
    CHECK(server.command({"EXISTS", row.key}).number == 1);
    CHECK(pttl(server, row.key) > 0);
  }
}

TEST_CASE("compat: over several servers a token whose votes were given back gets no others") {
  RedisServer servers[3];
  QuorumStore store = redlock_store(servers);
  for (const int occupied : {0, 1}) {
    servers[occupied].command({"SET", "N", "another's", "PX", "600000"});
  }
  const Claim claim = claim_on("N");
  refused(store, claim);
  CHECK(eventually([&] { return servers[2].command({"EXISTS", "N"}).number == 0; }));
  for (const int occupied : {0, 1}) servers[occupied].command({"DEL", "N"});
  // A release that is still on its way could end the lock of a later try with this token.
  CHECK(refused(store, claim).why == Refusal::Reason::split);
  granted(store, claim_on("N"));
}

TEST_CASE("compat: over several servers votes for several holders are split, and of none a lock") {
  RedisServer servers[3];
  QuorumStore store = redlock_store(servers);
  for (const int other : {0, 1}) {
    servers[other].command({"SET", "N", "of " + std::to_string(other), "PX", "600000"});
  }
  CHECK(refused(store, claim_on("N")).why == Refusal::Reason::split);
}

TEST_CASE("compat: --min-hold leaves the key with the rest of the time, and no longer") {
  for (const WrittenLayout& row : written_layouts) {
    CAPTURE(row.layout);
    const RedisServer server;
    const auto store = compat_store(row.layout, server.address());
    Claim claim = claim_on("N", milliseconds(60'000));
    claim.floor = milliseconds(30'000);
    granted(*store, claim);
    CHECK(release(*store, claim) == Released::yes);
    const auto left = pttl(server, row.key);
    CHECK(left > 0);
    CHECK(left <= 30'000);
    refused(*store, claim_on("N"));
    // The command never started, so its min-hold does not count.
    server.command({"FLUSHALL"});
    claim.token = new_token(claim.owner);
    granted(*store, claim);
    CHECK(store->release(claim, {ReleaseMode::ignore_floor}, soon()).outcome == Released::yes);
    CHECK(server.command({"EXISTS", row.key}).number == 0);
  }
}

}  // namespace dlock::test
