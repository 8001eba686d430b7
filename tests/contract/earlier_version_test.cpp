#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "contract/engines.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

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

/// The requests of clients of version 0.1, recorded: each sends the script that it brought along.
class ClientOfVersion01 {
 public:
  ClientOfVersion01(const RedisServer& server, std::string token)
      : server_(server), token_(std::move(token)), client_(token_.substr(0, token_.find(':'))) {}

  std::string acquire() const {
    return said({"acquire", token_, "", " 60000 60000 1 " + client_ + " vm 2020 root bash -", "0",
                 "60000", "", "22a0f3945c256cee"});
  }
  std::string renew() const { return said({"renew", token_, "", ""}); }
  std::string release() const { return said({"release", token_, ""}); }
  std::string force() const { return said({"force", "", "", "", "vm 3044 root dlock -"}); }

 private:
  /// The first word of the reply, which decides.
  std::string said(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words{"EVAL",           script(),          "4",
                                   "dlock:{k}",      "dlock:{k}:queue", "dlock:{k}:waiters",
                                   "dlock:{k}:fence"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Reply reply = server_.command(words);
    while (reply.kind == Reply::Kind::array && !reply.items.empty()) {
      reply = Reply(reply.items.front());
    }
    return reply.text.substr(0, reply.text.find(' '));
  }
  static const std::string& script() {
    static const std::string text = read_file(DLOCK_SCRIPT_OF_VERSION_0_1);
    return text;
  }

  const RedisServer& server_;
  std::string token_;
  std::string client_;
};

TEST_CASE("a client of version 0.1 and one of this version keep each other out") {
  RedisEngine engine;
  const auto store = engine.open();
  const ClientOfVersion01 old(engine.server, "23115bed83afb734:b071486bb0ca6e230cc92926a6ffdd6c");
  const Claim own = claim_on("k");

  REQUIRE(old.acquire() == "granted");
  refused(*store, own);
  CHECK(old.renew() == "renewed");
  CHECK(old.release() == "released");

  const Fence first = granted(*store, own).fence;
  CHECK(old.acquire() == "refused");
  CHECK(old.renew() == "gone");
  CHECK(old.release() == "left");
  CHECK(old.acquire() == "refused");
  CHECK(renew(*store, own));

  // The waiter of the old version is handed the lock, and evicted by the new one.
  CHECK(release(*store, own) == Released::yes);
  CHECK(eventually([&] { return old.acquire() == "granted"; }));
  CHECK(state_of(*store, "k").holders.at(0).fence > first);
  CHECK(store->evict(LockKey{"k"}, std::nullopt, evictor, soon()).size() == 1);
  CHECK(old.renew() != "renewed");

  // And the other way round.
  granted(*store, own);
  old.force();
  CHECK(!renew(*store, own));
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
