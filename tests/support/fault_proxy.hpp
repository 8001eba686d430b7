#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "support/loop_thread.hpp"
#include "support/proxy_link.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// Which connections a lasting fault is for.
enum class Whom { everyone, open_now };

/// A proxy in front of a server that does to the traffic what the test says, while it runs, in a
/// thread of its own. It takes whole RESP messages apart and forwards them in order; bytes under
/// TLS go on as they come. Every call has taken effect when it returns. Closing either side closes
/// the other once all is delivered; a client that leaves does not take back a request that is held.
class FaultProxy {
 public:
  /// Listens on a Unix socket of its own, or on a free port of 127.0.0.1.
  explicit FaultProxy(Address upstream, bool tcp = false);

  std::string url() const { return address_.url(); }
  const Address& address() const { return address_; }

  /// Bytes of this direction vanish, the end of the stream too: a half-open connection.
  void black_hole(Direction direction, Whom whom = Whom::everyone);
  /// Messages wait, in order, until `deliver_held` or `drop_held`, which both end the holding.
  void hold(Direction direction, Whom whom = Whom::everyone);
  void deliver_held(Direction direction);
  void drop_held(Direction direction);
  /// Every message is this much later than it came.
  void delay(Direction direction, milliseconds by);
  /// The server answers, the client never sees it; published messages do not count.
  void drop_replies(int count);
  /// The next request reaches the server twice; the client sees one reply, the first.
  void duplicate_request();
  /// Closes a connection once so many more bytes have been delivered; over all connections, once.
  void close_after(Direction direction, std::size_t bytes);
  /// Each byte a write of its own, after the last has been read (TCP: received).
  void one_byte_chunks(bool on);
  void close_connections();
  /// Closes with RST (TCP; a Unix socket's client sees the end of the stream).
  void reset_connections();
  /// Nobody listens while this is on; what is connected stays.
  void refuse(bool on);
  /// Every fault off; what is held is delivered.
  void heal();

  int connections();       ///< ever accepted
  int open_connections();  ///< not yet closed by both sides
  int requests();
  std::size_t bytes(Direction direction);  ///< received, delivered or not
  std::size_t held(Direction direction);   ///< messages waiting in a hold or a delay
  /// What each client has sent, by connection.
  std::vector<std::string> recorded();

 private:
  Deadline watch(std::vector<pollfd>& fds) const;
  void tick();
  void accept_clients();
  void set_listening(bool on);
  void set_mode(Direction direction, Pipe::Mode mode, Whom whom);

  TempDir dir_;
  Address upstream_;
  Address address_;
  Fd kept_port_;  ///< or another gets it while nobody listens
  Fd listener_;
  Faults faults_;
  Pipe::Mode fresh_[2] = {Pipe::Mode::forward, Pipe::Mode::forward};
  std::list<ProxyLink> links_;
  Traffic traffic_;
  LoopThread thread_;  ///< last, as it uses all of the above
};

/// Of a proxy that holds replies: lets them through, one after the other, until `done()` comes
/// true, and goes on holding the reply to the request that has done it.
void let_through_until(FaultProxy& proxy, const std::function<bool()>& done);

/// Sends recorded bytes once more, on a connection of their own, and returns the replies: as many
/// as there are requests.
std::string replay(const Address& server, std::string_view bytes);

}  // namespace dlock::test
