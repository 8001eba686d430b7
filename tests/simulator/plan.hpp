#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/chance.hpp"
#include "simulator/world.hpp"

namespace dlock::sim {

enum class Fault {
  partition,
  node_killed,
  node_flushed,
  node_frozen,
  client_killed,
  client_frozen,
  client_suspended,
  clock_step,
  interrupt,
};
constexpr std::size_t kinds_of_faults = 9;

/// The parameters of one schedule, drawn before it begins: which faults there are, and how strong.
/// Schedules with some faults off find what those with all faults on do not: Groce and others,
/// "Swarm testing", 2012.
struct Plan {
  std::size_t nodes = 3;
  std::size_t clients = 2;
  std::size_t rounds = 2;  ///< of each client, before the last one
  milliseconds ttl{1000};
  std::vector<std::int64_t> limits;  ///< a client takes one of them; 0: no limit
  bool same_owner = false;           ///< in all rounds of a client
  milliseconds longest_hold{0};
  milliseconds longest_thought{0};  ///< between two rounds

  /// Only the clocks go wrong, and all clients wait for as long as it takes: then they are served
  /// in the order in which they asked.
  bool orderly = false;
  /// The possible error of an order, because of the delays of messages and the clocks of servers.
  Span order_unsure(Span elapsed) const;

  /// Clocks may be set to anything. Then growing fences are promised, as long as no node loses
  /// its memory, but exclusion is not.
  bool wild_clocks = false;
  Span nodes_apart{0};     ///< the largest error of their wall clocks
  Span clients_behind{0};  ///< the same for the wall clocks of clients
  Span clients_ahead{0};
  /// Whether no server loses its memory: then a majority that was never used before has its votes
  /// at once.
  bool memories_last() const {
    return !wild_clocks && std::none_of(faults.begin(), faults.end(), [](Fault fault) {
      return fault == Fault::node_killed || fault == Fault::node_flushed;
    });
  }
  bool clocks_are_alike() const {
    return nodes_apart == Span(0) && clients_ahead <= milliseconds(1);
  }
  std::int64_t rate_ppm = 0;  ///< the largest error of the rates of all clocks
  bool fresh_nodes = false;   ///< up for long, and never used
  bool always_fsync = false;

  Span least_delay{0};
  Span further_away{0};  ///< the first node
  Span most_jitter{0};
  std::size_t lost_one_in = 0;  ///< messages; 0: none
  std::size_t reset_one_in = 0;
  std::size_t doubled_one_in = 0;
  std::size_t rest_one_in = 0;
  Span longest_rest{0};

  std::vector<Fault> faults;
  Span between_faults{0};
  Span longest_fault{0};
  Span trouble{0};  ///< how long there are faults before all is healed
};

Plan draw_plan(Chance& chance);

}  // namespace dlock::sim
