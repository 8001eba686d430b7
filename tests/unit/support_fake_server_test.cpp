#include <doctest/doctest.h>
#include <sys/socket.h>

#include <string>

#include "support/eventually.hpp"
#include "support/fake_server.hpp"
#include "support/resp.hpp"
#include "support/sockets.hpp"

namespace dlock::test {
namespace {

constexpr milliseconds a_moment{20};

/// The bytes before the end of the stream or a long silence, or the first `enough` of them.
std::string receive_all(const Fd& fd, std::size_t enough = std::string::npos) {
  std::string text;
  while (text.size() < enough) {
    const std::string more = receive_some(fd.get());
    if (more.empty()) break;
    text += more;
  }
  return text;
}

}  // namespace

TEST_CASE("the size of a message is told once it is whole") {
  for (const std::string whole : {"+OK\r\n", "-ERR x\r\n", ":1\r\n", "$-1\r\n", "$0\r\n\r\n",
                                  "*-1\r\n", "*0\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n"}) {
    CHECK(message_size(whole + "+next") == whole.size());
    for (std::size_t part = 0; part < whole.size(); ++part) {
      CHECK_FALSE(message_size(whole.substr(0, part)));
    }
  }
  CHECK(message_size("rubbish") == 7);
  CHECK(request_words(request({"a", "", "b\r\nc"})) == std::vector<std::string>{"a", "", "b\r\nc"});
}

TEST_CASE("each request of one write gets its own step, the last step again and again") {
  FakeServer server({say("+1\r\n"), say("-LOADING wait\r\n")});
  const Fd client = connect_to(server.address());
  send_all(client.get(), request({"A"}) + request({"B"}) + request({"C"}));
  CHECK(receive_all(client, 34) == "+1\r\n-LOADING wait\r\n-LOADING wait\r\n");
  CHECK(server.requests() == std::vector<std::vector<std::string>>{{"A"}, {"B"}, {"C"}});
  CHECK(server.connections() == 1);
}

TEST_CASE("a script sees the words it answers") {
  FakeServer server(
      [](const auto& words) {
        return words.at(0) == "AUTH" ? say("+OK\r\n") : say_and_close("$5\r\nha");
      },
      true);
  const Fd client = connect_to(server.address());
  send_all(client.get(), request({"AUTH", "x"}) + request({"GET", "k"}));
  CHECK(receive_all(client) == "+OK\r\n$5\r\nha");
}

TEST_CASE("a greeting comes unasked, be it bytes or the end") {
  FakeServer talker({silence()}, false, say("220 mail ready\r\n"));
  CHECK(receive_some(connect_to(talker.address()).get()) == "220 mail ready\r\n");
  FakeServer closer({silence()}, false, hang_up());
  CHECK(receive_all(connect_to(closer.address())).empty());
  CHECK(eventually([&] { return closer.connections() == 1; }));
}

TEST_CASE("a silent server keeps the connection and says nothing") {
  FakeServer server({silence()});
  const Fd client = connect_to(server.address());
  send_all(client.get(), request({"PING"}));
  CHECK(receive_some(client.get(), a_moment).empty());
  CHECK(eventually([&] { return server.requests().size() == 1; }));
  char byte = 0;
  CHECK(recv(client.get(), &byte, 1, MSG_DONTWAIT) == -1);
}

TEST_CASE("a reset is seen as one over TCP") {
  FakeServer server({say_and_reset("")}, true);
  const Fd client = connect_to(server.address());
  send_all(client.get(), request({"PING"}));
  char byte = 0;
  CHECK(recv(client.get(), &byte, 1, 0) == -1);
}

TEST_CASE("a flood goes on until the client leaves") {
  FakeServer server({flood("$1000000000\r\n")});
  std::size_t received = 0;
  {
    const Fd client = connect_to(server.address());
    send_all(client.get(), request({"GET", "k"}));
    received = receive_all(client, 5'000'000).size();
    CHECK(received >= 5'000'000);
  }
  CHECK(server.bytes_sent() >= received);
}

}  // namespace dlock::test
