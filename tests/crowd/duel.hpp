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

/// What a thread has to itself for its duels, one after the other.
struct Arena {
  Arena() { scene.go_through(proxy.url()); }
  RedisScene scene;
  FaultProxy proxy{scene.server.address()};
};

/// How a duel is to be.
struct Rules {
  bool in_freezer = false;   ///< the first is in a control group
  bool with_daemon = false;  ///< the first's command has started a daemon; neither heeds TERM
  bool apart = false;  ///< a duel in which the first is late is fought anew, three times at most
};

/// Two runs of one key, whose commands write to one resource for as long as they live: the first
/// holds when this is constructed, through the proxy; the second waits in the queue. In between
/// something is done to the first at a random moment.
class Duel {
 public:
  Duel(Arena& arena, Chance& chance, std::string key, const Rules& rules);
  ~Duel();

  Arena& arena() { return arena_; }
  const Freezer& freezer() const { return *freezer_; }
  const std::string& key() const { return key_; }
  Chance& chance() { return chance_; }
  Process& first() { return first_; }
  /// To the command of the first.
  void signal_command(int signal) const { kill(command_, signal); }
  /// Sleeps so many ttls, at random between the two.
  void pause(double least, double most);

  void wait_for_second();
  /// Error if the second has got in.
  void check_kept();
  /// By a signal that its command does not ignore, if it still runs.
  void end_first();
  /// Error unless it ends by itself and with 79.
  void first_loses();

  /// What was seen by the time both have ended.
  struct Outcome {
    /// From the last beat of the first to the moment when the server granted the second.
    std::chrono::nanoseconds margin{0};
    std::size_t late = 0;        ///< beats of the first after that moment
    std::size_t late_taken = 0;  ///< of these, how many the resource took after one of the second
    Deadline last_beat;          ///< of the first
    std::string trouble;         ///< what went otherwise than it must
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

/// Many duels, some of them at the same time; an outcome for each. `story` does what is to be done,
/// and sees to it that the first ends.
std::vector<Duel::Outcome> duels(const std::function<void(Duel&)>& story, const Rules& rules = {});

}  // namespace dlock::test
