#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "support/loop_thread.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// What a client gets in place of a reply.
struct FalseReply {
  enum class Then { go_on, close, reset, repeat };
  std::string bytes;
  Then then = Then::go_on;
  std::string again{};    ///< under `repeat`: sent again and again after `bytes`
  milliseconds pause{0};  ///< before each byte; 0: as fast as the client reads
};

/// How a server lies: from the reply that it would have given, what it says instead.
struct Lie {
  std::string name;
  std::function<FalseReply(const std::string& truth)> tell;
};

struct LiePlan {
  const Lie* lie = nullptr;
  std::size_t at = 0;       ///< in place of this reply, counted from 1; 0: never
  bool goes_on = false;     ///< and of every later one
  std::size_t liars = 100;  ///< so many of the servers lie, from the first; their replies count
};

/// Stands before one or more servers, with a socket for each, and passes on what they and their
/// clients say, except for the lies. An address of a server within a reply becomes the relay's.
class LyingRelay {
 public:
  /// On Unix sockets where a server is on one, else on ports of 127.0.0.1.
  LyingRelay(std::vector<Address> servers, LiePlan plan);

  std::vector<Address> addresses() const;
  /// Of the servers that may lie.
  std::size_t replies() const { return replies_; }
  /// How many servers have granted or renewed a lock in what their clients were given: also by a
  /// lie, where it is such a reply to the last byte and stands in place of a refusal.
  std::size_t told_of_grant();
  /// Whether a waiter was told by a message that it has the lock.
  bool told_of_hand_over();
  /// When a client was last given, before `then`, a grant or what the server had said, with other
  /// numbers perhaps; if there was none, long ago.
  Deadline last_truth(Deadline then);
  /// How often a server has refused a lock.
  std::size_t refusals() const { return refusals_; }

 private:
  struct Front {
    Address server;
    Address address;
    Fd listener;
  };
  struct Link {
    std::size_t server = 0;
    Fd client;
    Fd upstream;
    std::string heard;  ///< by the server, not yet a whole reply
    std::string to_client;
    FalseReply::Then then = FalseReply::Then::go_on;
    std::string again;
    milliseconds pause{0};
    Deadline next_byte{};
    bool is_over = false;
  };

  Deadline watch(std::vector<pollfd>& fds) const;
  void tick();
  void forward_requests(Link& link);
  void hear_replies(Link& link);
  void pass_on(Link& link, std::string reply);
  bool lies_now(const Link& link);
  void say(Link& link, const FalseReply& what);
  void send_on(Link& link);
  std::string with_own_addresses(std::string reply) const;

  TempDir dir_;
  LiePlan plan_;
  std::deque<Front> fronts_;
  std::list<Link> links_;
  std::set<std::size_t> granting_;
  bool has_handed_over_ = false;
  std::vector<Deadline> truths_;
  std::atomic<std::size_t> refusals_ = 0;
  std::atomic<std::size_t> replies_ = 0;
  LoopThread thread_;  ///< last, as it uses all of the above
};

}  // namespace dlock::test
