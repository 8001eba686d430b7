#pragma once

#include <signal.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/cgroup.hpp"
#include "support/chance.hpp"
#include "support/fault_proxy.hpp"
#include "support/heart.hpp"
#include "support/scene.hpp"

namespace dlock::test {

/// The server and the proxy of one thread, for its duels one after the other.
struct Arena {
  Arena() { scene.go_through(proxy.url()); }
  RedisScene scene;
  FaultProxy proxy{scene.server.address()};
};

/// The options of a duel.
struct Rules {
  bool in_freezer = false;   ///< the first runs in a control group
  bool with_daemon = false;  ///< the first's command has started a daemon; both ignore TERM
  bool apart = false;        ///< a duel whose first is late is fought again, three times at most
};

/// Two runs for one key, whose commands write to one resource for as long as they live. When this
/// is constructed, the first holds the lock, through the proxy, and the second waits in the queue.
/// Then something is done to the first at a random moment.
class Duel {
 public:
  Duel(Arena& arena, Chance& chance, std::string key, const Rules& rules);
  ~Duel();

  Arena& arena() { return arena_; }
  const Freezer& freezer() const { return *freezer_; }
  const std::string& key() const { return key_; }
  Chance& chance() { return chance_; }
  Process& first() { return first_; }
  /// Sends a signal to the command of the first.
  void signal_command(int signal) const { kill(command_, signal); }
  /// Sleeps for a random number of ttls between the two.
  void pause(double least, double most);

  void wait_for_second();
  /// Throws Error if the second holds the lock.
  void check_kept();
  /// Ends the first, if it still runs, by a signal that its command does not ignore.
  void end_first();
  /// Throws Error unless the first ends by itself with exit status 79.
  void first_loses();

  /// The observations by the time both have ended.
  struct Outcome {
    /// The time from the last beat of the first to the server's grant to the second.
    std::chrono::nanoseconds margin{0};
    std::size_t late = 0;        ///< beats of the first after that grant
    std::size_t late_taken = 0;  ///< of these, taken by the resource after a beat of the second
    Deadline last_beat;          ///< of the first
    std::string trouble;         ///< what went wrong
  };
  Outcome outcome();

 private:
  Process start(const std::string& name, const std::string& url, std::vector<std::string> words);
  std::vector<std::string> manners();
  bool wait_for_first() const;
  bool second_is_in() const;
  std::string file(const std::string& name) const;
  std::vector<Beat> beats(const std::string& name) const;

  Arena& arena_;
  Chance& chance_;
  Rules rules_;
  std::optional<Freezer> freezer_;
  std::string key_;
  milliseconds ttl_;
  Process first_;
  pid_t command_ = 0;
  Process second_;
};

/// Fights many duels, some of them at the same time, and returns an outcome for each. `story` acts
/// on the first and makes sure that it ends.
std::vector<Duel::Outcome> duels(const std::function<void(Duel&)>& story, const Rules& rules = {});

}  // namespace dlock::test
