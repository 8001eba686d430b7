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

/// The bytes that a client gets instead of a reply.
struct FalseReply {
  enum class Then { go_on, close, reset, repeat };
  std::string bytes;
  Then then = Then::go_on;
  std::string again{};    ///< with `repeat`: sent over and over after `bytes`
  milliseconds pause{0};  ///< before each byte; 0: as fast as the client reads
};

/// A kind of lie: makes the false reply from the true one.
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

/// Forwards the traffic between clients and one or more servers, with a socket for each, except for
/// the lies. It replaces the address of a server within a reply by its own.
class LyingRelay {
 public:
  /// Listens on Unix sockets if the server does, else on ports of 127.0.0.1.
  LyingRelay(std::vector<Address> servers, LiePlan plan);

  std::vector<Address> addresses() const;
  /// The number of replies of the servers that may lie.
  std::size_t replies() const { return replies_; }
  /// How many servers have granted or renewed a lock in what their clients were given: also by a
  /// lie, where it is such a reply to the last byte and stands in place of a refusal.
  std::size_t told_of_grant();
  /// Whether a message told a waiter that it has the lock.
  bool told_of_hand_over();
  /// When a client last got, before `then`, a grant or the true reply, which may have other
  /// numbers; a time long ago if never.
  Deadline last_truth(Deadline then);
  /// The number of refusals by the servers.
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
    std::string heard;  ///< from the server, not yet a whole reply
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
  LoopThread thread_;  ///< last, as the thread uses all members above
};

}  // namespace dlock::test
