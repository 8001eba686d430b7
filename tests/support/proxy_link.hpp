#pragma once

#include <poll.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"

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
  bool is_tls_ = false;      ///< bytes are forwarded as they come, as TLS hides messages
  int sent_ = 0;             ///< requests forwarded, copies included
  int answered_ = 0;         ///< replies received
  std::set<int> duplicate_;  ///< the replies that answer a duplicate request
};

}  // namespace dlock::test
