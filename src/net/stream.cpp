#include "net/stream.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace dlock {
namespace {

using namespace std::string_view_literals;

/// A server may fill the time with what says nothing, such as HelloRequests and tickets.
void check_time(const CallOptions& call_options, const char* awaited) {
  if (left_until(call_options.deadline) == milliseconds(0)) {
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

Stream Stream::connect(const Endpoint& endpoint, const CallOptions& call_options) {
  Stream stream(Socket::connect(endpoint, call_options));
  if (endpoint.tls) {
    stream.tls_ = std::make_unique<TlsSession>(endpoint);
    try {
      stream.shake_hands(call_options);
    } catch (const Error& error) {
      if (error.cause() != Cause::none || error.kind() != ErrorKind::unavailable) throw;
      throw_unavailable(error.what(), Cause::tls_interrupted);
    }
  }
  return stream;
}

void Stream::shake_hands(const CallOptions& call_options) {
  while (true) {
    try {
      // What ends the handshake goes out with the first request, in one write.
      if (tls_->shake_hands()) return;
    } catch (const Error&) {
      socket_.send_now(tls_->outgoing());  // the alert: for the server's log
      throw;
    }
    to_send_ += tls_->outgoing();
    if (!socket_.send(to_send_, call_options)) ended_in_tls();
    if (!heard_) look_for_plain_text(call_options);
    const std::string bytes = socket_.receive(call_options, "to the TLS handshake in time");
    if (bytes.empty()) ended_in_tls();
    heard_ = true;
    tls_->arrive(bytes);
    check_time(call_options, "to the TLS handshake in time");
  }
}

void Stream::look_for_plain_text(const CallOptions& call_options) const {
  // Redis takes a ClientHello for the beginning of a line and waits for the rest.
  constexpr milliseconds long_for_a_first_byte{1000};
  const auto quiet = std::min(long_for_a_first_byte, left_until(call_options.deadline) / 2);
  if (socket_.readable_by(later(BootClock::now(), quiet), call_options.cancel_fd)) return;
  const std::string answer = probe("PING\r\n", call_options);
  if (answer.starts_with('+') || answer.starts_with('-'))
    throw_unavailable(speaks_no_tls, Cause::no_tls);
}

/// What the server answers to `bytes` on a connection of their own, in plain text; empty if it does
/// not answer at once. Whatever it says, it says before it was verified: good for a hint alone.
std::string Stream::probe(std::string_view bytes, const CallOptions& call_options) const {
  constexpr milliseconds at_once{500};
  const auto time = std::min(at_once, left_until(call_options.deadline) / 2);
  const CallOptions brief{later(BootClock::now(), time), call_options.cancel_fd};
  try {
    Socket other = socket_.again(brief);
    std::string to_send(bytes);
    other.send(to_send, brief);
    return other.receive(brief, "in time");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    return "";
  }
}

void Stream::ended(const CallOptions& call_options) {
  if (tls_) ended_in_tls();
  // Redis closes a connection without a word where TLS was to begin; so do others for other
  // reasons.
  const bool mute = !heard_ && socket_.is_tcp();
  if (mute && looks_like_tls(probe(client_hello, call_options)))
    throw_unavailable(write_rediss, Cause::no_tls);
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

void Stream::send(std::string_view bytes, const CallOptions& call_options) {
  if (tls_) {
    tls_->write(bytes);
    to_send_ += tls_->outgoing();
  } else {
    to_send_ += bytes;
  }
  if (socket_.send(to_send_, call_options)) return;
  // Who does not listen any more may have said why.
  if (!tls_) arrived_ = socket_.receive_arrived();
  if (arrived_.empty()) ended(call_options);
}

std::string Stream::receive(const CallOptions& call_options) {
  while (arrived_.empty()) {
    if (tls_ && tls_->is_closed()) throw_unavailable(server_closed);
    std::string bytes = socket_.receive(call_options, "in time");
    if (bytes.empty()) ended(call_options);
    if (!tls_) {
      if (!heard_ && looks_like_tls(bytes)) throw_unavailable(write_rediss, Cause::no_tls);
      heard_ = true;
      return bytes;
    }
    tls_->arrive(bytes);
    arrived_ = tls_->read();
    // An answer of TLS's own, such as new keys.
    to_send_ += tls_->outgoing();
    if (!socket_.send(to_send_, call_options)) ended(call_options);
    if (arrived_.empty()) check_time(call_options, "in time");
  }
  return std::exchange(arrived_, "");
}

std::optional<TlsFacts> Stream::tls_facts() const {
  if (!tls_) return std::nullopt;
  return tls_->facts();
}

}  // namespace dlock
