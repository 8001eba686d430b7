#include "etcd/http_client.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/fake_server.hpp"
#include "support/silent_address.hpp"

namespace dlock::test {
namespace {

constexpr std::size_t mebibyte = 1u << 20;

CallOptions patiently() { return {later(BootClock::now(), std::chrono::seconds(60)), -1}; }

Step answer_of(std::size_t bytes) {
  return say("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n" +
             std::string(bytes, 'x'));
}

TEST_CASE("http: of a name's addresses one that is silent leaves time for the next") {
  FakeServer server({answer_of(1)}, true);
  const int port = server.address().port;
  const SilentAddress silent(port);
  const std::string host = "two.test:" + std::to_string(port);
  HttpClient client(std::nullopt);
  const auto code_of = [&](const std::string& addresses, milliseconds within) {
    std::vector<HttpCall> calls{{{"http://" + host + "/", {}, host + ":" + addresses}, "{}"}};
    client.post(calls, {later(BootClock::now(), within), -1});
    return calls[0].code;
  };
  CHECK(code_of("127.0.0.2", milliseconds(500)) == CURLE_OPERATION_TIMEDOUT);
  CHECK(code_of("127.0.0.2,127.0.0.1", milliseconds(16'000)) == CURLE_OK);
}

/// The results of `many` concurrent requests that are all answered with `step`.
std::vector<HttpCall> answered(std::size_t many, const Step& step) {
  FakeServer server({step}, true);
  const HttpAddress to{"http://127.0.0.1:" + std::to_string(server.address().port) + "/"};
  HttpClient client(std::nullopt);
  std::vector<HttpCall> calls(many, HttpCall{to, "{}"});
  client.post(calls, patiently());
  return calls;
}

bool is_too_large(const HttpCall& call) {
  return call.too_large && call.code != CURLE_OK && call.answer.empty() &&
         call.trouble == "an answer that is too large";
}

TEST_CASE("http: an answer of 2 MiB is taken whole, and a larger one not at all") {
  const auto largest = answered(1, answer_of(2 * mebibyte)).front();
  CHECK(largest.code == CURLE_OK);
  CHECK(!largest.too_large);
  CHECK(largest.answer == std::string(2 * mebibyte, 'x'));
  CHECK(is_too_large(answered(1, answer_of(2 * mebibyte + 1)).front()));
  CHECK(is_too_large(answered(1, flood("HTTP/1.1 200 OK\r\n\r\n")).front()));
}

TEST_CASE("http: a stream is told line by line, and one whose line does not end is broken") {
  const std::string ok = "HTTP/1.1 200 OK\r\n\r\n";
  FakeServer lines({say_and_close(ok + "one\ntwo\n\nthree\nrest")}, true);
  FakeServer endless({flood(ok + "one\n")}, true);
  HttpClient client(std::nullopt);
  const auto told = [&](const FakeServer& server) {
    client.open_stream({"http://127.0.0.1:" + std::to_string(server.address().port) + "/"}, "{}");
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

}  // namespace
}  // namespace dlock::test
