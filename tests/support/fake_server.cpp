#include "support/fake_server.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "support/resp.hpp"

namespace dlock::test {

Step say(std::string bytes) { return {std::move(bytes), Step::Then::go_on}; }
Step say_http(const std::string& body, const std::string& status) {
  return say("HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
             "\r\n\r\n" + body);
}
Step silence() { return {}; }
Step say_and_close(std::string bytes) { return {std::move(bytes), Step::Then::close}; }
Step hang_up() { return {"", Step::Then::close}; }
Step say_and_reset(std::string bytes) { return {std::move(bytes), Step::Then::reset}; }
Step flood(std::string bytes) { return {std::move(bytes), Step::Then::flood}; }

FakeServer::FakeServer(Choice choose, bool tcp, Step greeting, int)
    : address_{tcp ? "" : dir_ / "fake.sock"},
      listener_(listen_at(address_)),
      choose_(std::move(choose)),
      greeting_(std::move(greeting)),
      thread_([this](std::vector<pollfd>& fds) { return watch(fds); }, [this] { tick(); }) {}

FakeServer::FakeServer(Script script, bool tcp, Step greeting)
    : FakeServer(
          [script = std::move(script)](std::size_t, const auto& words) { return script(words); },
          tcp, std::move(greeting), 0) {}

FakeServer::FakeServer(std::vector<Step> steps, bool tcp, Step greeting)
    : FakeServer(
          [steps = std::move(steps)](std::size_t index, const auto&) {
            return steps.empty() ? silence() : steps[std::min(index, steps.size() - 1)];
          },
          tcp, std::move(greeting), 0) {}

Deadline FakeServer::watch(std::vector<pollfd>& fds) const {
  fds.push_back({listener_.get(), POLLIN, 0});
  for (const Client& client : clients_) {
    const bool writes = !client.to_send.empty() || client.then == Step::Then::flood;
    fds.push_back({client.fd.get(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
  return never;
}

void FakeServer::tick() {
  while (readable(listener_.get())) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) break;
    greet(std::move(fd));
  }
  for (Client& client : clients_) {
    receive(client);
    answer(client);
    send_on(client);
  }
  clients_.remove_if([](const Client& client) { return client.gone; });
}

void FakeServer::greet(Fd fd) {
  ++connections_;
  Client& client = clients_.emplace_back();
  client.fd = std::move(fd);
  client.to_send = greeting_.bytes;
  client.then = greeting_.then;
}

void FakeServer::receive(Client& client) {
  char block[65536];
  const ssize_t n = recv(client.fd.get(), block, sizeof block, MSG_DONTWAIT);
  if (n > 0) client.received.append(block, static_cast<std::size_t>(n));
  client.gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void FakeServer::answer(Client& client) {
  while (client.then == Step::Then::go_on) {
    const auto size = message_size(client.received);
    if (!size) return;
    requests_.push_back(request_words(client.received.substr(0, *size)));
    client.received.erase(0, *size);
    const Step step = choose_(client.answered++, requests_.back());
    client.to_send += step.bytes;
    client.then = step.then;
  }
}

void FakeServer::send_on(Client& client) {
  if (client.then == Step::Then::flood && client.to_send.size() < 65536) {
    client.to_send.append(65536, 'x');
  }
  if (!client.to_send.empty()) {
    const ssize_t n = send(client.fd.get(), client.to_send.data(), client.to_send.size(),
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) client.gone = true;
    if (n > 0) client.to_send.erase(0, static_cast<std::size_t>(n));
    if (n > 0) bytes_sent_ += static_cast<std::size_t>(n);
  }
  if (!client.to_send.empty()) return;
  // A close with unread data would send a reset, so read what the client sent first.
  if (client.then == Step::Then::close) shutdown(client.fd.get(), SHUT_WR);
  if (client.then == Step::Then::reset) {
    reset_connection(client.fd);
    client.gone = true;
  }
}

int FakeServer::connections() {
  int count = 0;
  thread_.ask([&] { count = connections_; });
  return count;
}

std::vector<std::vector<std::string>> FakeServer::requests() {
  std::vector<std::vector<std::string>> all;
  thread_.ask([&] { all = requests_; });
  return all;
}

std::size_t FakeServer::bytes_sent() {
  std::size_t count = 0;
  thread_.ask([&] { count = bytes_sent_; });
  return count;
}

}  // namespace dlock::test
