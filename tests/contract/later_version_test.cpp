#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "contract/engines.hpp"

namespace dlock::test {
namespace {

/// Of the Error that `work` ends with.
std::optional<ErrorKind> refusal_kind(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.kind();
  }
  return std::nullopt;
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
