#include "etcd/http_client.hpp"

#include <doctest/doctest.h>

#include <algorithm>

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
  CHECK(code_of("127.0.0.2,127.0.0.1", milliseconds(8000)) == CURLE_OK);
}

TEST_CASE("answers of HTTP that come at once have one bound, so that two cannot take all memory") {
  FakeServer server({answer_of(4 * mebibyte)}, true);
  const HttpAddress to{"http://127.0.0.1:" + std::to_string(server.address().port) + "/"};
  HttpClient client(std::nullopt);
  std::vector<HttpCall> one{{to, "{}"}}, two{{to, "{}"}, {to, "{}"}};
  client.post(one, patiently());
  CHECK(one[0].code == CURLE_OK);
  CHECK(one[0].answer.size() == 4 * mebibyte);
  client.post(two, patiently());
  CHECK(two[0].answer.size() + two[1].answer.size() <= 6 * mebibyte);
  const auto is_refused = [](const HttpCall& call) {
    return call.code != CURLE_OK && call.trouble == "an answer that is too large";
  };
  CHECK(std::count_if(two.begin(), two.end(), is_refused) == 1);
}

}  // namespace
}  // namespace dlock::test
