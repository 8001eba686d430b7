#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "redis/member_server.hpp"
#include "redis/redis_store.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/recorded_process.hpp"
#include "support/sockets.hpp"

namespace dlock::test {
namespace {

/// The data that a client of version 0.1 stored, recorded on a server: a holder and a waiter of
/// `k`. A version that cannot read them any more must refuse the key; this test then has to expect
/// that.
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

/// The channel of the 0.1 waiter; each waiter has its own.
const std::string channel_of_version_0_1 = "22a0f3945c256cee";

/// Recorded requests of clients of version 0.1; each sends the script of that version.
class ClientOfVersion01 {
 public:
  ClientOfVersion01(const RedisServer& server, std::string token)
      : server_(server), token_(std::move(token)), client_(token_.substr(0, token_.find(':'))) {}

  /// Waits if refused.
  std::string acquire() const {
    return said({"acquire", token_, "", claim(), "0", "60000", "", channel_of_version_0_1});
  }
  std::string renew() const { return said({"renew", token_, "", ""}); }
  std::string release() const { return said({"release", token_, ""}); }
  std::string force() const { return said({"force", "", "", "", "vm 3044 root dlock -"}); }

  /// The same request to a node of a quorum.
  std::string vote() const {
    return said({"acquire", token_, "", claim(), "0", "60000", "", "", "1"}, true);
  }
  std::string raise(Fence fence) const {
    return said({"renew", token_, "", "", std::to_string(fence.value)}, true);
  }
  std::string release_on_member() const { return said({"release", token_, ""}, true); }
  std::string rejoin(Fence fence) const {
    return said({"rejoin", token_, "", claim(), "0", "60000", std::to_string(fence.value)}, true);
  }

 private:
  std::string claim() const { return " 60000 60000 1 " + client_ + " vm 2020 root bash -"; }
  /// The first word of the reply, which holds the result.
  std::string said(const std::vector<std::string>& arguments, bool member = false) const {
    std::vector<std::string> words{"EVAL",           script(),          member ? "5" : "4",
                                   "dlock:{k}",      "dlock:{k}:queue", "dlock:{k}:waiters",
                                   "dlock:{k}:fence"};
    if (member) words.emplace_back("dlock:alive");
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

/// The server's messages to a waiter of version 0.1.
class ChannelOfVersion01 {
 public:
  explicit ChannelOfVersion01(const RedisServer& server) : fd_(connect_to(server.address())) {
    REQUIRE(send_all(fd_.get(), "SUBSCRIBE dlock:{k}:" + channel_of_version_0_1 + "\r\n"));
    REQUIRE(next("subscribe\r\n\\S+\r\n\\S+\r\n:(1)\r\n") == "1");
  }

  /// The next message with TIME for each clock and fence; empty if none comes.
  std::string message() {
    const std::string text = next("message\r\n\\S+\r\n\\S+\r\n\\S+\r\n(.*)\r\n");
    return std::regex_replace(text, std::regex("[0-9]{16}"), "TIME");
  }

 private:
  /// The text that matches the group of `pattern`.
  std::string next(const std::string& pattern) {
    const std::regex whole(pattern);
    std::smatch found;
    while (!std::regex_search(bytes_, found, whole)) {
      const std::string more = receive_some(fd_.get());
      if (more.empty()) return "";
      bytes_ += more;
    }
    const std::string text = found[1];
    bytes_ = found.suffix().str();
    return text;
  }

  Fd fd_;
  std::string bytes_;
};

/// The kind of the Error that `work` throws.
std::optional<ErrorKind> refusal_kind(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

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

  // The lock passes to the waiter of the old version, and the new version evicts it.
  CHECK(release(*store, own) == Released::yes);
  CHECK(eventually([&] { return old.acquire() == "granted"; }));
  CHECK(state_of(*store, "k").holders.at(0).fence > first);
  CHECK(store->evict(LockKey{"k"}, std::nullopt, evictor, soon()).size() == 1);
  CHECK(old.renew() != "renewed");

  // The old version evicts a hold of the new one.
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
  // The waiter has gone: the server gives it a moment and then passes over it.
  const Claim next = claim_on("k");
  REQUIRE(eventually([&] { return enters(*store, next); }));
  CHECK(state_of(*store, "k").holders.at(0).fence > state.holders[0].fence);
}

TEST_CASE("a waiter of version 0.1 is told of its turn as that version tells it") {
  RedisEngine engine;
  const auto store = engine.open();
  const ClientOfVersion01 holder(engine.server,
                                 "23115bed83afb734:b071486bb0ca6e230cc92926a6ffdd6c");
  const ClientOfVersion01 waiter(engine.server,
                                 "9f083f2c6ff9f658:c15301ee37fb03b32d20e71a208f7447");
  ChannelOfVersion01 channel(engine.server);
  const std::string grant = "grant TIME 6000 TIME ";

  REQUIRE(holder.acquire() == "granted");
  REQUIRE(waiter.acquire() == "refused");
  REQUIRE(holder.release() == "released");
  REQUIRE(channel.message() == grant);
  REQUIRE(waiter.acquire() == "granted");
  REQUIRE(waiter.release() == "released");

  const Claim own = claim_on("k");
  granted(*store, own);
  REQUIRE(waiter.acquire() == "refused");
  CHECK(release(*store, own) == Released::yes);
  CHECK(channel.message() == grant);
  CHECK(waiter.acquire() == "granted");
  refused(*store, claim_on("k"));

  // The same with another waiter after it, which runs another part of the script.
  REQUIRE(waiter.release() == "released");
  granted(*store, own);
  REQUIRE(waiter.acquire() == "refused");
  const auto other = engine.open();
  queue_up(*other, claim_on("k"));
  CHECK(release(*store, own) == Released::yes);
  CHECK(channel.message() == grant);
}

TEST_CASE("a member of a majority serves clients of version 0.1 and of this version") {
  const RedisServer server;
  record_process_of(server);
  const RedisTerms terms{.member = true};
  RedisStore member(std::make_unique<MemberServer>(endpoint_at(server.address()), terms), terms);
  const ClientOfVersion01 old(server, "23115bed83afb734:b071486bb0ca6e230cc92926a6ffdd6c");
  const Claim own = claim_on("k");
  const auto votes = [&] {
    return std::holds_alternative<Grant>(member.vote(own, {}, Fence{1}, soon()));
  };

  REQUIRE(old.vote() == "granted");
  CHECK(!votes());
  const Fence first = state_of(member, "k").holders.at(0).fence;
  const Fence raised{first.value + 5};
  CHECK(old.raise(raised) == "renewed");
  CHECK(state_of(member, "k").holders.at(0).fence == raised);
  CHECK(old.release_on_member() == "released");

  REQUIRE(votes());
  const Fence second = state_of(member, "k").holders.at(0).fence;
  CHECK(second > raised);
  CHECK(old.vote() == "refused");
  CHECK(old.release_on_member() == "absent");
  CHECK(renew(member, own));
  CHECK(release(member, own) == Released::yes);

  const Fence third{second.value + 5};
  CHECK(old.rejoin(third) == "renewed");
  CHECK(state_of(member, "k").holders.at(0).fence == third);
  CHECK(!votes());
}

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
      [&] { store->evict(LockKey{"k"}, std::nullopt, evictor, soon()); },
      [&] { store->evict(LockKey{"k"}, Fence{std::stoll(us)}, evictor, soon()); },
      [&] {
        store->inspect({{LockKey{"k"}}, {}}, soon());
      },
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    CHECK(refusal_kind(requests[i]) == ErrorKind::wrong_data);
  }
  // Other keys can be listed all the same.
  granted(*store, claim_on("neighbour"));
  CHECK(store->inspect({{}, {"*"}}, soon()).size() == 1);

  CHECK(server.command({"HLEN", "dlock:{k}"}).number == 1);
  CHECK(server.command({"HGET", "dlock:{k}", token}).text == value);
  CHECK(server.command({"PTTL", "dlock:{k}"}).number > 0);
  CHECK(server.command({"KEYS", "dlock:{k}:*"}).items.empty());
}

}  // namespace
}  // namespace dlock::test
