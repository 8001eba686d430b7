#include "support/fault_proxy.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/resp.hpp"
#include "support/sockets.hpp"

namespace dlock::test {

ProxyLink::ProxyLink(Fd client, Fd server, std::size_t number, Faults& faults, Traffic& traffic)
    : client_(std::move(client)),
      server_(std::move(server)),
      number_(number),
      faults_(faults),
      traffic_(traffic) {}

const Fd& ProxyLink::source(Direction direction) const {
  return direction == Direction::requests ? client_ : server_;
}

const Fd& ProxyLink::target(Direction direction) const {
  return direction == Direction::requests ? server_ : client_;
}

void ProxyLink::watch(std::vector<pollfd>& fds) const {
  for (const Direction direction : both_directions) {
    // A closed source would end every wait at once, so it is left out.
    if (!pipe(direction).ended) fds.push_back({source(direction).get(), POLLIN, 0});
    const bool writes = !pipe(direction).out.empty() && !faults_.one_byte_chunks;
    if (writes) fds.push_back({target(direction).get(), POLLOUT, 0});
  }
}

Deadline ProxyLink::wake_at() const {
  Deadline at = never;
  for (const Direction direction : both_directions) {
    const Pipe& way = pipe(direction);
    const bool waits = way.mode == Pipe::Mode::forward && !way.queue.empty();
    if (waits) at = std::min(at, way.queue.front().due);
    // No event says that the far side has read a byte, so poll soon.
    const bool chunked = faults_.one_byte_chunks && !way.out.empty();
    if (chunked) at = std::min(at, later(BootClock::now(), milliseconds(1)));
  }
  return at;
}

void ProxyLink::tick() {
  for (const Direction direction : both_directions) {
    if (!finished()) receive(direction);
    if (!finished()) forward(direction);
    if (!finished()) write_out(direction);
    if (!finished()) pass_end(direction);
  }
}

void ProxyLink::receive(Direction direction) {
  Pipe& way = pipe(direction);
  if (way.ended) return;
  char block[65536];
  const ssize_t n = recv(source(direction).get(), block, sizeof block, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  way.ended = n <= 0;
  if (n > 0) {
    const std::string_view bytes(block, static_cast<std::size_t>(n));
    traffic_.bytes[index(direction)] += bytes.size();
    if (direction == Direction::requests) traffic_.recorded[number_] += bytes;
    way.partial += bytes;
  }
  split(direction);
}

void ProxyLink::split(Direction direction) {
  Pipe& way = pipe(direction);
  if (way.partial.empty()) return;
  if (!is_resp_) is_resp_ = direction == Direction::requests && way.partial.starts_with('*');
  if (!*is_resp_) return take(direction, std::exchange(way.partial, ""));
  while (const auto size = message_size(way.partial)) {
    take(direction, way.partial.substr(0, *size));
    way.partial.erase(0, *size);
  }
  if (way.ended && !way.partial.empty()) take(direction, std::exchange(way.partial, ""));
}

void ProxyLink::take(Direction direction, std::string message) {
  const bool is_request = direction == Direction::requests;
  Pipe& way = pipe(direction);
  if (is_request) ++traffic_.requests;
  const bool dropped = !is_request && is_dropped(message);
  if (dropped || way.mode == Pipe::Mode::black_hole) return;
  if (!is_request && is_refused(message)) message = faults_.refusal;
  const Deadline due = later(BootClock::now(), faults_.delay[index(direction)]);
  if (is_request) ++sent_;
  if (is_request && faults_.duplicate_requests > 0) {
    --faults_.duplicate_requests;
    duplicate_.insert(++sent_);
    way.queue.push_back({message, due});
  }
  way.queue.push_back({std::move(message), due});
}

bool ProxyLink::is_dropped(std::string_view reply) {
  if (is_published(reply)) return false;
  if (duplicate_.contains(++answered_)) return true;
  if (faults_.drop_replies == 0) return false;
  --faults_.drop_replies;
  return true;
}

bool ProxyLink::is_refused(std::string_view reply) {
  if (faults_.refusal.empty() || is_published(reply)) return false;
  if (faults_.replies_to_spare-- > 0) return false;
  return faults_.replies_to_refuse-- > 0;
}

void ProxyLink::forward(Direction direction) {
  Pipe& way = pipe(direction);
  if (way.mode != Pipe::Mode::forward) return;
  const Deadline now = BootClock::now();
  while (!way.queue.empty() && way.queue.front().due <= now) {
    way.out += way.queue.front().bytes;
    way.queue.pop_front();
  }
}

/// The number of bytes of `out` that the active faults allow to write now.
std::size_t ProxyLink::writable_now(Direction direction) const {
  std::size_t most = pipe(direction).out.size();
  if (faults_.one_byte_chunks) {
    int unread = 0;
    ioctl(target(direction).get(), SIOCOUTQ, &unread);
    most = std::min<std::size_t>(most, unread == 0 ? 1 : 0);
  }
  return std::min(most, faults_.close_after[index(direction)].value_or(most));
}

void ProxyLink::write_out(Direction direction) {
  Pipe& way = pipe(direction);
  const std::size_t most = writable_now(direction);
  if (most > 0) {
    const ssize_t n =
        send(target(direction).get(), way.out.data(), most, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) way.out.clear();
    if (n > 0) way.out.erase(0, static_cast<std::size_t>(n));
    auto& left = faults_.close_after[index(direction)];
    if (n > 0 && left) *left -= static_cast<std::size_t>(n);
  }
  auto& left = faults_.close_after[index(direction)];
  if (left && *left == 0) {
    left.reset();
    close_both(false);
  }
}

void ProxyLink::pass_end(Direction direction) {
  Pipe& way = pipe(direction);
  if (!way.drained() || way.passed_end) return;
  way.passed_end = true;
  shutdown(target(direction).get(), SHUT_WR);
  const bool server_left = direction == Direction::replies;
  if (server_left) close_both(false);
}

void ProxyLink::close_both(bool with_reset) {
  if (with_reset) {
    reset_connection(client_);
    reset_connection(server_);
  }
  client_.reset();
  server_.reset();
}

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
