#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "contract/engines.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

/// What a client of version 0.1 has stored, recorded on a server: a holder and a waiter of `k`. A
/// version that cannot read it any more must refuse the key, and this test with it becomes one of
/// that refusal.
void store_as_version_0_1_does(const RedisServer& server) {
  const auto now = server.command({"TIME"});
  const std::string us = std::to_string(std::stoll(now.items.at(0).text) * 1'000'000);
  const std::vector<std::vector<std::string>> recorded{
      {"SET", "dlock:{k}:fence",
       us + " " + us + " 60000 60000 1 549b880072e0055b vm 9930 root bash L", "PX", "604799412"},
      {"HSET", "dlock:{k}", "549b880072e0055b:8e216dfe58f35c57cea4210f0fc42c66",
       "h 0 " + us + " " + us + " " + us + " 60000 60000 1 549b880072e0055b vm 9930 root bash L"},
      {"PEXPIRE", "dlock:{k}", "59343"},
      {"HSET", "dlock:{k}:waiters", "9f083f2c6ff9f658:c15301ee37fb03b32d20e71a208f7447",
       us + " 0 4995182c7edd4b1a - 0 30000 30000 1 9f083f2c6ff9f658 vm 9957 root true -"},
      {"PEXPIRE", "dlock:{k}:waiters", "119306"},
      {"ZADD", "dlock:{k}:queue", us, "9f083f2c6ff9f658:c15301ee37fb03b32d20e71a208f7447"},
      {"PEXPIRE", "dlock:{k}:queue", "119210"},
  };
  for (const auto& command : recorded) {
    REQUIRE(server.command(command).kind != Reply::Kind::error);
  }
}

TEST_CASE("a lock and a waiter of version 0.1 are a lock and a waiter to this version") {
  RedisEngine engine;
  store_as_version_0_1_does(engine.server);
  const auto store = engine.open();
  const KeyState state = state_of(*store, "k");
  REQUIRE(state.holders.size() == 1);
  CHECK(state.holders[0].who.pid == 9930);
  CHECK(state.holders[0].who.label == "L");
  REQUIRE(state.waiters.size() == 1);
  CHECK(state.waiters[0].who.pid == 9957);

  const Claim late = claim_on("k");
  refused(*store, late);
  const Claim held = claim_named({"k"}, {"549b880072e0055b:8e216dfe58f35c57cea4210f0fc42c66"});
  CHECK(renew(*store, held));
  CHECK(release(*store, held) == Released::yes);
  // The waiter has gone: it is given a moment, and is passed over.
  const Claim next = claim_on("k");
  REQUIRE(eventually([&] { return enters(*store, next); }));
  CHECK(state_of(*store, "k").holders.at(0).fence > state.holders[0].fence);
}

}  // namespace
}  // namespace dlock::test
