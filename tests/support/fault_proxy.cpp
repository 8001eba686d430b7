#include "support/fault_proxy.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/resp.hpp"

namespace dlock::test {
FaultProxy::FaultProxy(Address upstream, bool tcp)
    : upstream_(std::move(upstream)),
      address_{tcp ? "" : dir_ / "proxy.sock"},
      kept_port_(tcp ? bind_to(address_) : Fd()),
      listener_(listen_at(address_)),
      thread_([this](std::vector<pollfd>& fds) { return watch(fds); }, [this] { tick(); }) {}

Deadline FaultProxy::watch(std::vector<pollfd>& fds) const {
  Deadline wake_at = never;
  fds.push_back({listener_.get(), POLLIN, 0});
  for (const ProxyLink& link : links_) {
    link.watch(fds);
    wake_at = std::min(wake_at, link.wake_at());
  }
  return wake_at;
}

void FaultProxy::tick() {
  accept_clients();
  for (ProxyLink& link : links_) link.tick();
  links_.remove_if([](const ProxyLink& link) { return link.finished(); });
}

void FaultProxy::accept_clients() {
  while (listener_ && readable(listener_.get())) {
    Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) return;
    const std::size_t number = traffic_.recorded.size();
    traffic_.recorded.emplace_back();
    Fd server = connect_to(upstream_);
    if (!server) continue;
    auto& link =
        links_.emplace_back(std::move(client), std::move(server), number, faults_, traffic_);
    for (const Direction direction : both_directions)
      link.pipe(direction).mode = fresh_[index(direction)];
  }
}

void FaultProxy::set_mode(Direction direction, Pipe::Mode mode, Whom whom) {
  if (whom == Whom::everyone) fresh_[index(direction)] = mode;
  for (ProxyLink& link : links_) link.pipe(direction).mode = mode;
}

void FaultProxy::black_hole(Direction direction, Whom whom) {
  thread_.ask([&] { set_mode(direction, Pipe::Mode::black_hole, whom); });
}

void FaultProxy::hold(Direction direction, Whom whom) {
  thread_.ask([&] { set_mode(direction, Pipe::Mode::hold, whom); });
}

void FaultProxy::deliver_held(Direction direction) {
  thread_.ask([&] { set_mode(direction, Pipe::Mode::forward, Whom::everyone); });
}

void FaultProxy::drop_held(Direction direction) {
  thread_.ask([&] {
    for (ProxyLink& link : links_) {
      if (link.pipe(direction).mode == Pipe::Mode::hold) link.pipe(direction).queue.clear();
    }
    set_mode(direction, Pipe::Mode::forward, Whom::everyone);
  });
}

void FaultProxy::delay(Direction direction, milliseconds by) {
  thread_.ask([&] { faults_.delay[index(direction)] = by; });
}

void FaultProxy::drop_replies(int count) {
  thread_.ask([&] { faults_.drop_replies = count; });
}

void FaultProxy::refuse_requests(const std::string& error, int spared, int count) {
  thread_.ask([&] {
    faults_.refusal = error + "\r\n";
    faults_.replies_to_spare = spared;
    faults_.replies_to_refuse = count;
  });
}

void FaultProxy::duplicate_request() {
  thread_.ask([&] { ++faults_.duplicate_requests; });
}

void FaultProxy::close_after(Direction direction, std::size_t bytes) {
  thread_.ask([&] { faults_.close_after[index(direction)] = bytes; });
}

void FaultProxy::one_byte_chunks(bool on) {
  thread_.ask([&] { faults_.one_byte_chunks = on; });
}

void FaultProxy::close_connections() {
  thread_.ask([&] {
    for (ProxyLink& link : links_) link.close_both(false);
    links_.clear();
  });
}

void FaultProxy::reset_connections() {
  thread_.ask([&] {
    for (ProxyLink& link : links_) link.close_both(true);
    links_.clear();
  });
}

void FaultProxy::set_listening(bool on) {
  if (on == static_cast<bool>(listener_)) return;
  // shutdown works even while a newly forked process still shares the socket.
  if (listener_) shutdown(listener_.get(), SHUT_RDWR);
  listener_ = on ? listen_at(address_) : Fd();
}

void FaultProxy::refuse(bool on) {
  thread_.ask([&] { set_listening(!on); });
}

void FaultProxy::heal() {
  thread_.ask([&] {
    faults_ = Faults();
    set_listening(true);
    for (const Direction direction : both_directions) {
      set_mode(direction, Pipe::Mode::forward, Whom::everyone);
    }
  });
}

int FaultProxy::connections() { return static_cast<int>(recorded().size()); }

int FaultProxy::open_connections() {
  int count = 0;
  thread_.ask([&] { count = static_cast<int>(links_.size()); });
  return count;
}

int FaultProxy::requests() {
  int count = 0;
  thread_.ask([&] { count = traffic_.requests; });
  return count;
}

std::size_t FaultProxy::bytes(Direction direction) {
  std::size_t count = 0;
  thread_.ask([&] { count = traffic_.bytes[index(direction)]; });
  return count;
}

std::size_t FaultProxy::held(Direction direction) {
  std::size_t count = 0;
  thread_.ask([&] {
    for (const ProxyLink& link : links_) count += link.pipe(direction).queue.size();
  });
  return count;
}

std::vector<std::string> FaultProxy::recorded() {
  std::vector<std::string> all;
  thread_.ask([&] { all = traffic_.recorded; });
  return all;
}

void let_through_until(FaultProxy& proxy, const std::function<bool()>& done) {
  const auto has_reply = [&] { return proxy.held(Direction::replies) > 0; };
  while (!done()) {
    if (!eventually([&] { return has_reply() || done(); })) {
      throw Error(ErrorKind::bug, "no reply came");
    }
    if (done()) return;
    proxy.deliver_held(Direction::replies);
    proxy.hold(Direction::replies);
  }
}

std::string replay(const Address& server, std::string_view bytes) {
  const Fd connection = connect_to(server);
  if (!connection) throw_errno("connecting to " + server.url());
  send_all(connection.get(), bytes);
  std::string received;
  std::size_t whole = 0;
  while (const auto size = message_size(bytes)) {
    bytes.remove_prefix(*size);
    while (!message_size(std::string_view(received).substr(whole))) {
      const std::string more = receive_some(connection.get());
      if (more.empty()) return received;
      received += more;
    }
    whole += *message_size(std::string_view(received).substr(whole));
  }
  return received;
}

}  // namespace dlock::test
