// Redis only: a TLS connection over a faulty network, as the client sees it.

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "redis/redis_connection.hpp"
#include "support/fault_proxy.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {
namespace {

EndpointResolver route_to(const Endpoint& endpoint) { return endpoint; }

CallOptions for_half_a_minute() { return {later(BootClock::now(), milliseconds(30'000)), -1}; }

/// The answer to PING, or the error instead.
std::string ping(RedisConnection& connection) {
  const Request request{"PING"};
  try {
    return connection.exchange({&request, 1}, for_half_a_minute()).front().text;
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unavailable);
    return error.what();
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("tls: a connection cut at any byte is trouble that is told, and never a reply") {
  TlsRedis redis;
  FaultProxy proxy(Address{"", redis.server.tls_port()}, true);
  const Endpoint endpoint = redis.endpoint(proxy.address().port);
  for (const char* version : {"TLSv1.3", "TLSv1.2"}) {
    redis.set("tls-protocols", version);
    const std::size_t before = proxy.bytes(Direction::replies);
    RedisConnection whole(route_to(endpoint));
    REQUIRE(ping(whole) == "PONG");
    const std::size_t all = proxy.bytes(Direction::replies) - before;
    whole.close();
    // The server may send close_notify, which must not count for the next connection.
    CHECK(eventually([&] { return proxy.open_connections() == 0; }));
    for (const std::size_t cut : {std::size_t(1), std::size_t(5), std::size_t(200), all / 2}) {
      CAPTURE(cut);
      proxy.close_after(Direction::replies, cut);
      RedisConnection connection(route_to(endpoint));
      CHECK(has(ping(connection), "during the TLS handshake"));
    }
    // Signatures vary by some bytes in length: these cuts are always within the last record.
    for (const std::size_t missing : {8U, 15U, 24U}) {
      CAPTURE(missing);
      proxy.close_after(Direction::replies, all - missing);
      RedisConnection connection(route_to(endpoint));
      CHECK(has(ping(connection), ": the connection was cut without a TLS close"));
    }
  }
}

TEST_CASE("tls: an idle connection stands, and one that the server closed meanwhile is renewed") {
  TlsRedis redis;
  for (const char* version : {"TLSv1.3", "TLSv1.2"}) {
    redis.set("tls-protocols", version);
    RedisConnection connection(route_to(redis.endpoint()));
    CHECK(!connection.tls_facts());
    for (int i = 0; i < 3; ++i) CHECK(ping(connection) == "PONG");
    CHECK(connection.links() == 1);
    const auto facts = connection.tls_facts();
    REQUIRE(facts);
    CHECK(facts->version == version);
    CHECK(facts->expires > wall_now() + std::chrono::hours(24));
    CHECK(facts->expires < wall_now() + std::chrono::hours(49));

    redis.server.command({"CLIENT", "KILL", "TYPE", "normal"});
    CHECK(eventually([&] {
      return !has(redis.server.command({"CLIENT", "LIST"}).text, "name=dlock");
    }));
    CHECK(ping(connection) == "PONG");
    // The client read the server's close_notify before it sent anything, so it sent nothing twice.
    CHECK(connection.links() == 2);
    CHECK(!connection.was_sent_twice());
  }
}

TEST_CASE("tls: a request of a megabyte and its reply pass") {
  TlsRedis redis;
  RedisConnection connection(route_to(redis.endpoint()));
  const std::string large(500'000, 'x');
  const Request set{"SET", "k", large}, get{"GET", "k"};
  const Request requests[] = {set, get, set, get};
  const auto replies = connection.exchange(requests, for_half_a_minute());
  REQUIRE(replies.size() == 4);
  CHECK(replies[3].text == large);
}

TEST_CASE("tls: a client certificate that ends before the server's is told of") {
  TlsRedis redis;
  redis.set("tls-auth-clients", "yes");
  const auto own = redis.ca.issue("client", "DNS:client", 1);
  Endpoint endpoint = redis.endpoint();
  endpoint.tls->certificate = own.file;
  endpoint.tls->key = own.key;
  RedisConnection connection(route_to(endpoint));
  CHECK(ping(connection) == "PONG");
  CHECK(connection.tls_facts()->expires < wall_now() + std::chrono::hours(25));
}

}  // namespace dlock::test
