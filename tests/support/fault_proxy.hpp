#pragma once

#include <poll.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "support/loop_thread.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

enum class Direction { requests, replies };
constexpr Direction both_directions[] = {Direction::requests, Direction::replies};
constexpr int index(Direction direction) { return static_cast<int>(direction); }

/// The faults that a FaultProxy applies to all its connections.
struct Faults {
  milliseconds delay[2] = {milliseconds(0), milliseconds(0)};
  std::optional<std::size_t> close_after[2];
  int drop_replies = 0;
  std::string refusal;       ///< sent in place of replies
  int replies_to_spare = 0;  ///< before the first of them
  int replies_to_refuse = 0;
  int duplicate_requests = 0;
  bool one_byte_chunks = false;
};

/// The traffic that a FaultProxy has seen.
struct Traffic {
  int requests = 0;
  std::size_t bytes[2] = {0, 0};
  std::vector<std::string> recorded;  ///< by connection, from the client
};

/// One direction of a proxied connection: its messages on their way.
struct Pipe {
  enum class Mode { forward, hold, black_hole };
  struct Message {
    std::string bytes;
    Deadline due;
  };

  Mode mode = Mode::forward;
  std::string partial;        ///< received, not yet a whole message
  std::deque<Message> queue;  ///< whole messages that wait for their time
  std::string out;            ///< ready to be written
  bool ended = false;         ///< the source has closed
  bool passed_end = false;    ///< the end was passed on to the far side

  bool drained() const { return ended && mode == Mode::forward && queue.empty() && out.empty(); }
};

/// A client's connection and its connection to the server. FaultProxy's thread drives it.
class ProxyLink {
 public:
  ProxyLink(Fd client, Fd server, std::size_t number, Faults& faults, Traffic& traffic);

  Pipe& pipe(Direction direction) { return pipes_[static_cast<int>(direction)]; }
  const Pipe& pipe(Direction direction) const { return pipes_[static_cast<int>(direction)]; }

  void watch(std::vector<pollfd>& fds) const;
  Deadline wake_at() const;
  /// Reads, forwards and writes as much as it can without blocking.
  void tick();
  void close_both(bool with_reset);
  bool finished() const { return !client_; }

 private:
  const Fd& source(Direction direction) const;
  const Fd& target(Direction direction) const;
  void receive(Direction direction);
  void split(Direction direction);
  void take(Direction direction, std::string message);
  bool is_dropped(std::string_view reply);
  bool is_refused(std::string_view reply);
  void forward(Direction direction);
  std::size_t writable_now(Direction direction) const;
  void write_out(Direction direction);
  void pass_end(Direction direction);

  Fd client_;
  Fd server_;
  std::size_t number_;
  Faults& faults_;
  Traffic& traffic_;
  Pipe pipes_[2];
  /// Whether the first bytes were a request of RESP; other bytes are forwarded as they come.
  std::optional<bool> is_resp_;
  int sent_ = 0;             ///< requests forwarded, copies included
  int answered_ = 0;         ///< replies received
  std::set<int> duplicate_;  ///< the replies that answer a duplicate request
};

/// The connections that a lasting fault applies to.
enum class Whom { everyone, open_now };

/// A proxy in front of a server that injects faults on demand; it runs in its own thread. It
/// forwards whole RESP messages in order, and the bytes of other protocols as they come. Every call
/// has taken effect when it returns. If either side closes, the proxy closes the other after
/// delivering all data. A held request stays held if its client disconnects.
class FaultProxy {
 public:
  /// Listens on a Unix socket of its own, or on a free port of 127.0.0.1.
  explicit FaultProxy(Address upstream, bool tcp = false);

  std::string url() const { return address_.url(); }
  const Address& address() const { return address_; }

  /// Discards the bytes of this direction, and the end of the stream: a half-open connection.
  void black_hole(Direction direction, Whom whom = Whom::everyone);
  /// Queues messages in order until `deliver_held` or `drop_held`, which both end the hold.
  void hold(Direction direction, Whom whom = Whom::everyone);
  void deliver_held(Direction direction);
  void drop_held(Direction direction);
  /// Delays every message by this time.
  void delay(Direction direction, milliseconds by);
  /// Drops the next `count` replies of the server; published messages do not count.
  void drop_replies(int count);
  /// After `spared` more replies, sends this error in place of the next `count` of them.
  void refuse_requests(const std::string& error, int spared, int count);
  /// The next request reaches the server twice; the client gets only the first reply.
  void duplicate_request();
  /// Closes one connection, once, after this many more bytes over all connections.
  void close_after(Direction direction, std::size_t bytes);
  /// Writes each byte on its own, after the receiver has read the last (TCP: received it).
  void one_byte_chunks(bool on);
  void close_connections();
  /// Closes with RST (TCP; the client of a Unix socket sees the end of the stream).
  void reset_connections();
  /// Stops listening while this is on; open connections stay.
  void refuse(bool on);
  /// Ends every fault and delivers the held messages.
  void heal();

  int connections();       ///< ever accepted
  int open_connections();  ///< not yet closed by both sides
  int requests();
  std::size_t bytes(Direction direction);  ///< received, delivered or not
  std::size_t held(Direction direction);   ///< messages waiting in a hold or a delay
  /// The bytes that each client has sent, by connection.
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
  Fd kept_port_;  ///< keeps the port from others while the proxy refuses
  Fd listener_;
  Faults faults_;
  Pipe::Mode fresh_[2] = {Pipe::Mode::forward, Pipe::Mode::forward};
  std::list<ProxyLink> links_;
  Traffic traffic_;
  LoopThread thread_;  ///< last, as the thread uses all members above
};

/// For a proxy that holds replies: delivers them one by one until `done()` returns true. The reply
/// to the request that made it true stays held.
void let_through_until(FaultProxy& proxy, const std::function<bool()>& done);

/// Sends recorded bytes again on a new connection; returns one reply for each request.
std::string replay(const Address& server, std::string_view bytes);

}  // namespace dlock::test
