#pragma once

#include <string>
#include <string_view>

#include "base/endpoint.hpp"
#include "base/fd.hpp"
#include "lock/store.hpp"

namespace dlock {

/// A connected byte stream to a server over TCP or a Unix socket. Every call has a deadline and can
/// be interrupted; trouble is Error{unavailable}, after which the stream is of no further use.
class Stream {
 public:
  /// Tries every address the host resolves to, each for its share of the time left.
  static Stream connect(const Endpoint& endpoint, const Patience& patience);

  /// Whether the peer has closed it, as far as is known here; what has arrived may still be read.
  bool has_ended() const;
  void send(std::string_view bytes, const Patience& patience);
  /// At least one byte; the end of the stream is trouble.
  std::string receive(const Patience& patience);

 private:
  explicit Stream(Fd socket) : socket_(std::move(socket)) {}
  void await(short events, const Patience& patience, const char* doing);

  Fd socket_;
};

}  // namespace dlock
