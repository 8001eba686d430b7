#include "support/proxy_link.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

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
  constexpr char tls_handshake = 0x16;
  if (direction == Direction::requests && way.partial.starts_with(tls_handshake)) is_tls_ = true;
  if (is_tls_ && !way.partial.empty()) take(direction, std::exchange(way.partial, ""));
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

}  // namespace dlock::test
