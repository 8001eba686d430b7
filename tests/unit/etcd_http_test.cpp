// HTTP requests whose connection ends, and leases of an etcd with impossible answers.

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "etcd/etcd_backend.hpp"
#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"

namespace dlock::test {
namespace {

CallOptions while_testing() { return {later(BootClock::now(), std::chrono::seconds(60)), -1}; }

Step answer_with(const std::string& body) {
  return say("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
             body);
}

HttpAddress url_of(const Address& address) {
  return {"http://127.0.0.1:" + std::to_string(address.port) + "/"};
}

HttpCall posted(HttpClient& client, const Address& address, bool once) {
  std::vector<HttpCall> calls{{url_of(address), "{}", once}};
  client.post(calls, while_testing());
  return calls.front();
}

TEST_CASE("http: a request that may come once is not sent again when a kept connection ends") {
  // Each connection answers once; the server reads the next request on it and never answers.
  FakeServer server({answer_with("{}"), hang_up()}, true);
  HttpClient client(std::nullopt);
  CHECK(posted(client, server.address(), true).code == CURLE_OK);
  const HttpCall lost = posted(client, server.address(), true);
  CHECK(lost.code != CURLE_OK);
  CHECK(lost.trouble == "the connection ended before the answer");
  CHECK(lost.may_have_come);
  CHECK(server.requests().size() == 2);
  // A repeatable request is sent again.
  CHECK(posted(client, server.address(), false).code == CURLE_OK);
  CHECK(posted(client, server.address(), false).code == CURLE_OK);
  CHECK(server.requests().size() == 5);
}

TEST_CASE("http: a request may have come though the next connection is refused") {
  FakeServer server({answer_with("{}")}, true);
  FaultProxy proxy(server.address(), true);
  HttpClient client(std::nullopt);
  CHECK(posted(client, proxy.address(), false).code == CURLE_OK);
  proxy.refuse(true);
  proxy.close_after(Direction::requests, 1);
  const HttpCall lost = posted(client, proxy.address(), false);
  CHECK(lost.code == CURLE_COULDNT_CONNECT);
  CHECK(lost.may_have_come);
  const HttpCall never_sent = posted(client, proxy.address(), false);
  CHECK(never_sent.code == CURLE_COULDNT_CONNECT);
  CHECK(!never_sent.may_have_come);
}

TEST_CASE("http: another login closes the stream, whose request has the headers of the last") {
  FakeServer server({silence()}, true);
  HttpClient client(std::nullopt);
  client.open_stream(url_of(server.address()), "{}");
  REQUIRE(client.has_stream());
  client.set_authorization("another");
  CHECK(!client.has_stream());
}

/// The result of a renewal with this answer.
PlaceLease renewed(const std::string& body) {
  FakeServer server({answer_with(body)}, true);
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = server.address().port;
  EtcdBackend backend({endpoint}, "etcd://of-the-test");
  PlaceLease lease{7, milliseconds(30'000), milliseconds(30'000), BootClock::now()};
  backend.renew(lease, while_testing());
  return lease;
}

TEST_CASE("etcd: only an answer that tells how long a lease lasts renews it") {
  const PlaceLease lease = renewed(R"({"result":{"ID":"7","TTL":"31"}})");
  CHECK(lease.id == 7);
  CHECK(lease.length == milliseconds(31'000));
  CHECK(renewed(R"({"result":{"ID":"7"}})").id == 0);
  CHECK(renewed(R"({"error":{"grpc_code":5,"message":"lease not found"}})").id == 0);
  for (const char* other : {R"({"error":{"grpc_code":9,"message":"a precondition"}})",
                            R"({"code":9,"message":"a precondition"})",
                            R"({"result":{"ID":"7","TTL":"9223372036854775807"}})"}) {
    CAPTURE(other);
    CHECK_THROWS_AS(renewed(other), Error);
  }
}

}  // namespace
}  // namespace dlock::test
