#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "base/error.hpp"
#include "redis/entry_format.hpp"
#include "redis/redis_client.hpp"
#include "support/fake_server.hpp"

// The connection of a reply, and its fate if that connection ends right after the reply.

namespace dlock::test {
namespace {

constexpr milliseconds until_heard{50};

Endpoint endpoint_of(const FakeServer& server) {
  Endpoint endpoint;
  endpoint.socket_path = server.address().path;
  return endpoint;
}

RedisStoreOptions of_a_cluster() {
  RedisStoreOptions options;
  options.may_move = true;
  return options;
}

/// A client that handles a reply only after its server has finished everything that follows it.
class SlowClient final : public RedisClient {
 public:
  explicit SlowClient(FakeServer& server)
      : RedisClient(endpoint_of(server), of_a_cluster()), server_(server) {}

 private:
  void check_link() override { server_.connections(); }

  FakeServer& server_;
};

}  // namespace

TEST_CASE("a client hears nothing on a link that took the place of the one it listened on") {
  FakeServer server([](const auto& words) {
    if (words.at(0) != "EXEC") return say("+OK\r\n");
    return say_and_close("*2\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n$7\r\nrefused\r\n");
  });
  SlowClient client(server);
  ScriptRun run;
  run.text = "return 'refused'";
  run.sha1 = "0";
  run.keys = {"k"};
  run.arguments = {"acquire"};
  run.channel = "c";
  const auto reply =
      client.run_script(run, {later(BootClock::now(), std::chrono::seconds(20)), -1});
  CHECK(reply_text(reply, 0) == "refused");
  REQUIRE(client.links() == 2);
  CHECK_THROWS_AS(client.next_message("c", later(BootClock::now(), until_heard), -1), Error);
}

}  // namespace dlock::test
