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

/// The harm that is done to a server, and how it ends.
enum class Harm {
  killed,      ///< kill -9; restarted
  frozen,      ///< SIGSTOP; SIGCONT
  deaf,        ///< requests vanish; connections are reset
  mute,        ///< replies vanish; connections are reset
  refusing,    ///< connections are reset and refused; accepted again
  slow,        ///< all messages of one direction are delayed
  late,        ///< requests wait; they arrive, even if their client has left
  unanswered,  ///< replies wait; they are lost with their connections
  doubled,     ///< requests arrive twice
  clock,       ///< the wall clock jumps and stays there
};

/// Harms the servers of a fleet at random. It does only what a network or a machine could do: a
/// connection never loses bytes without breaking.
class Storm {
 public:
  Storm(const Fleet& fleet, Chance& chance);

  /// Harms at most two servers at the same moment, until then. A server whose clock has jumped
  /// counts as harmed for as long as leases may last. A server that lost its memory, which happens
  /// once, counts for as long as it has no vote.
  void harm_minority(Deadline until);
  /// The time in which more than half of the servers, or all, were unreachable.
  struct Outage {
    Deadline from;
    Deadline to;
  };
  Outage harm_majority(milliseconds span);

  /// Empties more than half of the servers at once. They have no vote for longer than a test lasts.
  void empty_majority();

  /// How often each harm was done.
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
