#include "http/http_client.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/sockets.hpp"

namespace dlock::test {
namespace {

constexpr std::size_t mebibyte = 1u << 20;

CallOptions patiently() { return {later(BootClock::now(), std::chrono::seconds(60)), -1}; }

Step answer_of(std::size_t bytes) { return say_http(std::string(bytes, 'x')); }

HttpAddress url_of(const Address& address) {
  return {"http://127.0.0.1:" + std::to_string(address.port) + "/"};
}

TEST_CASE("http: of a name's addresses one that is silent leaves time for the next") {
  FakeServer server({answer_of(1)}, true);
  const int port = server.address().port;
  const SilentAddress silent(port);
  const std::string host = "two.test:" + std::to_string(port);
  HttpClient client(std::nullopt);
  const auto trouble_of = [&](const std::string& addresses, milliseconds within) {
    std::vector<HttpCall> calls{
        {.to = {"http://" + host + "/", {}, host + ":" + addresses}, .body = "{}"}};
    client.send(calls, {later(BootClock::now(), within), -1});
    return calls[0].trouble;
  };
  CHECK(trouble_of("127.0.0.2", milliseconds(500)) == "no answer in time");
  CHECK(trouble_of("127.0.0.2,127.0.0.1", milliseconds(16'000)).empty());
}

/// The result of a request that is answered with `step`.
HttpCall answered(const Step& step) {
  FakeServer server({step}, true);
  HttpClient client(std::nullopt);
  std::vector<HttpCall> calls{{.to = url_of(server.address()), .body = "{}"}};
  client.send(calls, patiently());
  return calls.front();
}

bool is_too_large(const HttpCall& call) {
  return call.end == HttpCall::End::failed && call.answer.empty() &&
         call.trouble == "an answer that is too large";
}

TEST_CASE("http: an answer of 16 MiB is taken whole, and a larger one not at all") {
  const HttpCall largest = answered(answer_of(16 * mebibyte));
  CHECK(largest.end == HttpCall::End::answered);
  CHECK(largest.answer == std::string(16 * mebibyte, 'x'));
  CHECK(is_too_large(answered(answer_of(16 * mebibyte + 1))));
  CHECK(is_too_large(answered(flood("HTTP/1.1 200 OK\r\n\r\n"))));
}

TEST_CASE("http: a stream is told line by line, and one whose line does not end is broken") {
  const std::string ok = "HTTP/1.1 200 OK\r\n\r\n";
  FakeServer lines({say_and_close(ok + "one\ntwo\n\nthree\nrest")}, true);
  FakeServer endless({flood(ok + "one\n")}, true);
  HttpClient client(std::nullopt);
  const auto told = [&](const FakeServer& server) {
    client.open_stream({.to = url_of(server.address()), .body = "{}"});
    std::vector<std::string> all;
    while (true) {
      auto line = client.next_line(patiently().deadline, -1);
      if (std::holds_alternative<HttpClient::StreamEnd>(line)) {
        CHECK(std::get<HttpClient::StreamEnd>(line) == HttpClient::StreamEnd::broken);
        return all;
      }
      all.push_back(std::get<std::string>(std::move(line)));
    }
  };
  CHECK(told(lines) == std::vector<std::string>{"one", "two", "", "three", "rest"});
  CHECK(told(endless) == std::vector<std::string>{"one"});
}

HttpCall posted(HttpClient& client, const Address& address, bool once) {
  std::vector<HttpCall> calls{{.to = url_of(address), .body = "{}", .once = once}};
  client.send(calls, patiently());
  return calls.front();
}

TEST_CASE("http: a request that may come once is not sent again when a kept connection ends") {
  // Each connection answers once; the server reads the next request on it and never answers.
  FakeServer server({answer_of(1), hang_up()}, true);
  HttpClient client(std::nullopt);
  const auto answered = HttpCall::End::answered;
  CHECK(posted(client, server.address(), true).end == answered);
  const HttpCall lost = posted(client, server.address(), true);
  CHECK(lost.end == HttpCall::End::failed);
  CHECK(lost.trouble == "the connection ended before the answer");
  CHECK(lost.may_have_come);
  CHECK(server.requests().size() == 2);
  // A repeatable request is sent again.
  CHECK(posted(client, server.address(), false).end == answered);
  CHECK(posted(client, server.address(), false).end == answered);
  CHECK(server.requests().size() == 5);
}

TEST_CASE("http: a request may have come though the next connection is refused") {
  FakeServer server({answer_of(1)}, true);
  FaultProxy proxy(server.address(), true);
  HttpClient client(std::nullopt);
  CHECK(posted(client, proxy.address(), false).end == HttpCall::End::answered);
  proxy.refuse(true);
  proxy.close_after(Direction::requests, 1);
  const HttpCall lost = posted(client, proxy.address(), false);
  CHECK(lost.end == HttpCall::End::failed);
  CHECK(lost.may_have_come);
  const HttpCall never_sent = posted(client, proxy.address(), false);
  CHECK(never_sent.end == HttpCall::End::failed);
  CHECK(!never_sent.may_have_come);
}

TEST_CASE("http: another login closes the stream, whose request has the headers of the last") {
  FakeServer server({silence()}, true);
  HttpClient client(std::nullopt);
  client.open_stream({.to = url_of(server.address()), .body = "{}"});
  REQUIRE(client.has_stream());
  client.set_authorization("another");
  CHECK(!client.has_stream());
}

}  // namespace
}  // namespace dlock::test
