#include "redis/stream.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace dlock {
namespace {

using namespace std::string_view_literals;

/// A server may fill the time with what says nothing, such as HelloRequests and tickets.
void check_time(const Patience& patience, const char* awaited) {
  if (left_until(patience.deadline) == milliseconds(0)) {
    throw_unavailable(std::string("no answer ") + awaited);
  }
}

/// The least of a ClientHello (RFC 5246, 7.4.1.2): TLS 1.2, a random of zeros, one cipher suite.
constexpr auto client_hello =
    "\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03"
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "\x00\x00\x02\x00\x2f\x01\x00"sv;

/// Whether it is the beginning of an alert or of a handshake, in any version of TLS.
bool looks_like_tls(std::string_view bytes) {
  return bytes.starts_with("\x15\x03") || bytes.starts_with("\x16\x03");
}

constexpr const char* server_closed = "the server closed the connection";
constexpr const char* write_rediss = "it speaks TLS: write rediss:// in place of redis://";

}  // namespace

Stream Stream::connect(const Endpoint& endpoint, const Patience& patience,
                       const AddressListener& on_resolved) {
  Stream stream(Socket::connect(endpoint, patience, on_resolved));
  if (endpoint.tls) {
    stream.tls_ = std::make_unique<TlsSession>(endpoint);
    stream.shake_hands(patience);
  }
  return stream;
}

void Stream::shake_hands(const Patience& patience) {
  while (true) {
    try {
      // What ends the handshake goes out with the first request, in one write.
      if (tls_->shake_hands()) return;
    } catch (const Error&) {
      socket_.send_now(tls_->outgoing());  // the alert: for the server's log
      throw;
    }
    to_send_ += tls_->outgoing();
    if (!socket_.send(to_send_, patience)) ended_in_tls();
    if (!heard_) look_for_plain_text(patience);
    const std::string bytes = socket_.receive(patience, "to the TLS handshake in time");
    if (bytes.empty()) ended_in_tls();
    heard_ = true;
    tls_->arrive(bytes);
    check_time(patience, "to the TLS handshake in time");
  }
}

void Stream::look_for_plain_text(const Patience& patience) const {
  // Redis takes a ClientHello for the beginning of a line and waits for the rest.
  constexpr milliseconds long_for_a_first_byte{1000};
  const auto quiet = std::min(long_for_a_first_byte, left_until(patience.deadline) / 2);
  if (socket_.readable_by(later(BootClock::now(), quiet), patience.interrupt_fd)) return;
  const std::string answer = probe("PING\r\n", patience);
  if (answer.starts_with('+') || answer.starts_with('-')) throw_unavailable(speaks_no_tls);
}

/// What the server answers to `bytes` on a connection of their own, in plain text; empty if it does
/// not answer at once. Whatever it says, it says before it was verified: good for a hint alone.
std::string Stream::probe(std::string_view bytes, const Patience& patience) const {
  constexpr milliseconds at_once{500};
  const auto time = std::min(at_once, left_until(patience.deadline) / 2);
  const Patience brief{later(BootClock::now(), time), patience.interrupt_fd};
  try {
    Socket other = socket_.again(brief);
    std::string to_send(bytes);
    other.send(to_send, brief);
    return other.receive(brief, "in time");
  } catch (const Error& error) {
    if (error.trouble() == Trouble::interrupted) throw;
    return "";
  }
}

void Stream::ended(const Patience& patience) {
  if (tls_) ended_in_tls();
  // Redis closes a connection without a word where TLS was to begin; so do others for other
  // reasons.
  const bool mute = !heard_ && socket_.is_tcp();
  if (mute && looks_like_tls(probe(client_hello, patience))) throw_unavailable(write_rediss);
  throw_unavailable(socket_.broke().empty() ? server_closed : socket_.broke());
}

void Stream::ended_in_tls() {
  const std::string broke = socket_.broke();
  // The reason may have arrived before the end: a send that fails is told no more than that.
  for (auto bytes = socket_.receive_arrived(); !bytes.empty(); bytes = socket_.receive_arrived()) {
    tls_->arrive(bytes);
    if (tls_->shake_hands()) tls_->read();
  }
  throw tls_->ended(broke);
}

bool Stream::has_ended() {
  if (!tls_) return socket_.has_ended();
  // What has arrived may be a session ticket or a farewell: TLS alone can tell.
  constexpr int most_of_an_idle_time = 4;
  try {
    for (int i = 0; i < most_of_an_idle_time && !tls_->is_closed(); ++i) {
      const std::string bytes = socket_.receive_arrived();
      if (bytes.empty()) return socket_.at_end();
      tls_->arrive(bytes);
      arrived_ += tls_->read();
    }
  } catch (const Error&) {
    return true;
  }
  return tls_->is_closed();
}

void Stream::send(std::string_view bytes, const Patience& patience) {
  if (tls_) {
    tls_->write(bytes);
    to_send_ += tls_->outgoing();
  } else {
    to_send_ += bytes;
  }
  if (socket_.send(to_send_, patience)) return;
  // Who does not listen any more may have said why.
  if (!tls_) arrived_ = socket_.receive_arrived();
  if (arrived_.empty()) ended(patience);
}

std::string Stream::receive(const Patience& patience) {
  while (arrived_.empty()) {
    if (tls_ && tls_->is_closed()) throw_unavailable(server_closed);
    std::string bytes = socket_.receive(patience, "in time");
    if (bytes.empty()) ended(patience);
    if (!tls_) {
      if (!heard_ && looks_like_tls(bytes)) throw_unavailable(write_rediss);
      heard_ = true;
      return bytes;
    }
    tls_->arrive(bytes);
    arrived_ = tls_->read();
    // An answer of TLS's own, such as new keys.
    to_send_ += tls_->outgoing();
    if (!socket_.send(to_send_, patience)) ended(patience);
    if (arrived_.empty()) check_time(patience, "in time");
  }
  return std::exchange(arrived_, "");
}

std::optional<TlsFacts> Stream::tls_facts() const {
  if (!tls_) return std::nullopt;
  return tls_->facts();
}

}  // namespace dlock
