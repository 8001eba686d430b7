#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "support/chance.hpp"
#include "support/fleet.hpp"

namespace dlock::test {

/// What is done to a server until it is mended.
enum class Harm {
  killed,      ///< kill -9; restarted
  frozen,      ///< SIGSTOP; SIGCONT
  deaf,        ///< requests vanish; connections are reset
  mute,        ///< replies vanish; connections are reset
  refusing,    ///< connections are reset, nobody listens; somebody does
  slow,        ///< all messages of a direction come later
  late,        ///< requests wait; they arrive, also of whoever has left
  unanswered,  ///< replies wait; they are lost with their connections
  doubled,     ///< requests arrive twice
  clock,       ///< the wall clock jumps, and stays there
};

/// Does harm to the servers of a fleet, at random. What it does is such that a network and a
/// machine could do it: bytes of a connection are never lost without the connection.
class Storm {
 public:
  Storm(const Fleet& fleet, Chance& chance);

  /// Until then, never to more than two at the same moment. A server whose clock has jumped counts
  /// for as long as leases may last; one that lost its memory, which happens once, as long as it
  /// has no vote.
  void harm_minority(Deadline until);
  /// More than half of them, or all, out of reach.
  struct Outage {
    Deadline from;
    Deadline to;
  };
  Outage harm_majority(milliseconds span);

  /// More than half of them forget everything at once, and have no vote for longer than a test
  /// lasts.
  void empty_majority();

  /// How often what was done.
  const std::map<std::string, int>& harms() const { return harms_; }

 private:
  struct Slot {
    std::optional<std::size_t> server;
    Harm harm{};
    Deadline until{};
  };

  bool is_free(std::size_t server) const;
  void strike(Slot& slot);
  void forget(Slot& slot);
  void release(Slot& slot);
  void do_harm(std::size_t server, Harm harm);
  void mend(std::size_t server, Harm harm);
  std::size_t any_free();
  Harm any_harm(std::size_t server);

  const Fleet& fleet_;
  Chance& chance_;
  std::array<Slot, 2> slots_;
  std::map<std::string, int> harms_;
};

}  // namespace dlock::test
