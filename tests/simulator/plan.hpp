#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/chance.hpp"
#include "simulator/clock.hpp"

namespace dlock::sim {

enum class Fault {
  partition,
  member_killed,
  member_flushed,
  member_frozen,
  client_killed,
  client_frozen,
  client_suspended,
  clock_step,
  interrupt,
};
constexpr std::size_t kinds_of_faults = 9;

/// What is drawn for one schedule before it begins: which faults there are and how strong.
/// Schedules in which some are off find what those in which all are on do not: Groce and others,
/// "Swarm testing", 2012.
struct Plan {
  std::size_t members = 3;
  std::size_t clients = 2;
  std::size_t rounds = 2;  ///< of each client, before the last one
  milliseconds ttl{1000};
  std::vector<std::int64_t> limits;  ///< a client takes one of them; 0: none
  bool same_owner = false;           ///< of all rounds of a client
  milliseconds longest_hold{0};
  milliseconds longest_thought{0};  ///< between two rounds

  /// Nothing goes wrong but the clocks, and all wait for as long as it takes: then they are served
  /// in the order in which they asked.
  bool orderly = false;
  /// By so much an order may be mistaken: what messages, and clocks of servers, differ by.
  Span order_unsure(Span elapsed) const;

  /// Clocks may be set to anything. Then exclusion is not promised, but the fences are, as long as
  /// no member loses its memory.
  bool wild_clocks = false;
  Span members_apart{0};   ///< their wall clocks are wrong by so much at most
  Span clients_behind{0};  ///< the wall clocks of clients likewise
  Span clients_ahead{0};
  /// Whether no server loses what it knows: then a majority that was never used before has its
  /// votes at once.
  bool memories_last() const {
    return !wild_clocks && std::none_of(faults.begin(), faults.end(), [](Fault fault) {
      return fault == Fault::member_killed || fault == Fault::member_flushed;
    });
  }
  bool clocks_are_alike() const {
    return members_apart == Span(0) && clients_ahead <= milliseconds(1);
  }
  std::int64_t rate_ppm = 0;   ///< how wrong the rates of all clocks are at most
  bool fresh_members = false;  ///< up for long, and never used
  bool always_fsync = false;

  Span least_delay{0};
  Span further_away{0};  ///< is the first member
  Span most_jitter{0};
  std::size_t lost_one_in = 0;  ///< messages; 0: none
  std::size_t reset_one_in = 0;
  std::size_t doubled_one_in = 0;
  std::size_t rest_one_in = 0;
  Span longest_rest{0};

  std::vector<Fault> faults;
  Span between_faults{0};
  Span longest_fault{0};
  Span trouble{0};  ///< how long there are faults; then all is healed
};

Plan draw_plan(Chance& chance);

}  // namespace dlock::sim
