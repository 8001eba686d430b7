#include <doctest/doctest.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "support/eventually.hpp"
#include "support/fault_proxy.hpp"
#include "support/redis_server.hpp"
#include "support/resp.hpp"

namespace dlock::test {
namespace {

constexpr milliseconds a_blink{20};

/// A raw client that sends words and reads bytes.
class Client {
 public:
  explicit Client(const FaultProxy& proxy) : fd_(connect_to(proxy.address())) {}
  bool connected() const { return static_cast<bool>(fd_); }
  bool send(const std::vector<std::string>& words) { return send_all(fd_.get(), request(words)); }
  std::string ask(const std::vector<std::string>& words) {
    send(words);
    return receive();
  }
  /// One reply; if the connection ends, the bytes before its end.
  std::string receive() {
    while (!message_size(received_)) {
      const std::string more = receive_some(fd_.get());
      if (more.empty()) return std::exchange(received_, "");
      received_ += more;
    }
    const std::string reply = received_.substr(0, *message_size(received_));
    received_.erase(0, reply.size());
    return reply;
  }
  bool silent() const { return receive_some(fd_.get(), a_blink).empty() && !ended(); }
  /// Whether the stream has ended.
  bool ended() const {
    char byte = 0;
    const ssize_t n = recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  }
  const Fd& fd() const { return fd_; }
  void leave() { fd_.reset(); }

 private:
  Fd fd_;
  std::string received_;
};

struct Setup {
  RedisServer server;
  FaultProxy proxy{server.address()};
  Client client{proxy};
  std::string stored(const std::string& key) { return server.command({"GET", key}).text; }
};

}  // namespace

TEST_CASE("an idle proxy forwards, counts and records") {
  Setup s;
  CHECK(s.client.ask({"SET", "a", "b"}) == "+OK\r\n");
  CHECK(s.client.ask({"GET", "a"}) == "$1\r\nb\r\n");
  CHECK(s.proxy.connections() == 1);
  CHECK(s.proxy.requests() == 2);
  CHECK(s.proxy.bytes(Direction::replies) == 12);
  CHECK(s.proxy.recorded().at(0) == request({"SET", "a", "b"}) + request({"GET", "a"}));
  s.client.leave();
  CHECK(eventually([&] { return s.proxy.open_connections() == 0; }));
}

TEST_CASE("requests in a black hole do not arrive, replies in one are not seen") {
  Setup s;
  s.proxy.black_hole(Direction::requests);
  s.client.send({"SET", "a", "1"});
  // Otherwise the proxy may read it after it has healed, and forward it.
  CHECK(eventually([&] { return s.proxy.requests() == 1; }));
  CHECK(s.client.silent());
  CHECK(s.stored("a").empty());
  s.proxy.heal();
  s.proxy.black_hole(Direction::replies);
  s.client.send({"SET", "a", "2"});
  CHECK(eventually([&] { return s.stored("a") == "2"; }));
  s.server.kill_hard();
  CHECK(s.client.silent());
}

TEST_CASE("replies are held until delivered or dropped") {
  Setup s;
  s.proxy.hold(Direction::replies);
  s.client.send({"ECHO", "1"});
  s.client.send({"ECHO", "2"});
  CHECK(eventually([&] { return s.proxy.held(Direction::replies) == 2; }));
  CHECK(s.client.silent());
  s.proxy.deliver_held(Direction::replies);
  CHECK(s.client.receive() == "$1\r\n1\r\n");
  CHECK(s.client.receive() == "$1\r\n2\r\n");
  s.proxy.hold(Direction::replies);
  s.client.send({"ECHO", "3"});
  CHECK(eventually([&] { return s.proxy.held(Direction::replies) == 1; }));
  s.proxy.drop_held(Direction::replies);
  CHECK(s.client.ask({"ECHO", "4"}) == "$1\r\n4\r\n");
}

TEST_CASE("a held request arrives after its client has left, and others pass meanwhile") {
  Setup s;
  CHECK(s.client.ask({"PING"}) == "+PONG\r\n");
  s.proxy.hold(Direction::requests, Whom::open_now);
  s.client.send({"SET", "ghost", "1"});
  CHECK(eventually([&] { return s.proxy.held(Direction::requests) == 1; }));
  s.client.leave();
  Client other(s.proxy);
  CHECK(other.ask({"EXISTS", "ghost"}) == ":0\r\n");
  s.proxy.deliver_held(Direction::requests);
  CHECK(eventually([&] { return s.stored("ghost") == "1"; }));
  CHECK(eventually([&] { return s.proxy.open_connections() == 1; }));
}

TEST_CASE("the next replies are dropped, published messages are not") {
  Setup s;
  Client subscriber(s.proxy);
  CHECK(subscriber.ask({"SUBSCRIBE", "c"}).find("subscribe") != std::string::npos);
  s.proxy.drop_replies(1);
  s.server.command({"PUBLISH", "c", "news"});
  CHECK(subscriber.receive().find("news") != std::string::npos);
  s.client.send({"SET", "a", "1"});
  CHECK(s.client.ask({"ECHO", "next"}) == "$4\r\nnext\r\n");
  CHECK(s.stored("a") == "1");
}

TEST_CASE("a duplicated request is done twice and answered once") {
  Setup s;
  s.proxy.duplicate_request();
  CHECK(s.client.ask({"INCR", "n"}) == ":1\r\n");
  CHECK(s.client.ask({"INCR", "n"}) == ":3\r\n");
}

TEST_CASE("a connection closes after so many bytes of either direction") {
  Setup s;
  s.proxy.close_after(Direction::replies, 6);
  CHECK(s.client.ask({"ECHO", "long"}) == "$4\r\nlo");
  CHECK(s.client.ended());
  Client next(s.proxy);
  s.proxy.close_after(Direction::requests, 10);
  CHECK(next.ask({"SET", "a", "1"}).empty());
  CHECK(s.stored("a").empty());
}

TEST_CASE("each byte comes alone where that is asked for") {
  Setup s;
  s.proxy.one_byte_chunks(true);
  s.client.send({"ECHO", "x"});
  std::string received;
  while (!message_size(received)) {
    const std::string piece = receive_some(s.client.fd().get());
    REQUIRE(piece.size() == 1);
    received += piece;
  }
  CHECK(received == "$1\r\nx\r\n");
}

TEST_CASE("each direction can be slow") {
  Setup s;
  s.proxy.delay(Direction::requests, a_blink);
  const auto before = BootClock::now();
  CHECK(s.client.ask({"PING"}) == "+PONG\r\n");
  CHECK(BootClock::now() - before >= a_blink);
  s.proxy.delay(Direction::requests, milliseconds(0));
  s.proxy.delay(Direction::replies, a_blink);
  s.client.send({"SET", "a", "1"});
  CHECK(eventually([&] { return s.stored("a") == "1"; }));
  CHECK(s.client.receive() == "+OK\r\n");
  CHECK(BootClock::now() - before >= 2 * a_blink);
}

TEST_CASE("a reset connection tells a TCP client so, a closed one just ends") {
  const RedisServer server;
  FaultProxy proxy(server.address(), true);
  Client first(proxy);
  CHECK(first.ask({"PING"}) == "+PONG\r\n");
  proxy.reset_connections();
  char byte = 0;
  CHECK(recv(first.fd().get(), &byte, 1, 0) == -1);
  Client second(proxy);
  CHECK(second.ask({"PING"}) == "+PONG\r\n");
  proxy.close_connections();
  CHECK(recv(second.fd().get(), &byte, 1, 0) == 0);
}

TEST_CASE("a proxy that refuses cannot be connected to until it is told otherwise") {
  for (const bool tcp : {false, true}) {
    const RedisServer server;
    FaultProxy proxy(server.address(), tcp);
    Client before(proxy);
    CHECK(before.ask({"PING"}) == "+PONG\r\n");
    proxy.refuse(true);
    CHECK_FALSE(Client(proxy).connected());
    CHECK(before.ask({"PING"}) == "+PONG\r\n");
    proxy.refuse(false);
    CHECK(Client(proxy).ask({"PING"}) == "+PONG\r\n");
  }
}

TEST_CASE("a server that has gone is gone for the proxy's clients too") {
  Setup s;
  CHECK(s.client.ask({"PING"}) == "+PONG\r\n");
  s.server.kill_hard();
  CHECK(eventually([&] { return s.client.ended(); }));
  CHECK(Client(s.proxy).ask({"PING"}).empty());
}

TEST_CASE("recorded requests can be sent once more") {
  Setup s;
  s.client.ask({"INCR", "n"});
  s.client.ask({"INCR", "n"});
  CHECK(replay(s.server.address(), s.proxy.recorded().at(0)) == ":3\r\n:4\r\n");
}

}  // namespace dlock::test
