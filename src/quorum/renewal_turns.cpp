#include "quorum/renewal_turns.hpp"

#include <algorithm>

namespace dlock {

void RenewalTurns::await_far_nodes(Nodes& nodes, std::map<HoldName, QuorumHold>& holds,
                                   const HoldName& next, const CallOptions& call_options) {
  const auto owed = nodes.hold_owed_beside(next);
  if (!owed) return;
  const auto found = holds.find(*owed);
  if (found == holds.end()) return;
  const auto overtaken = found->second.overtaken++;
  const bool has_turn = std::none_of(holds.begin(), holds.end(), [&](const auto& each) {
    return each.first != *owed && each.second.overtaken > overtaken;
  });
  const auto now = BootClock::now();
  const auto request_time = left_until(call_options.deadline);
  // The other holds would pay for each wait: all of them together wait no longer than one would.
  const bool is_new = now >= later(wait_until_, request_time);
  if (!has_turn || (!is_new && now >= wait_until_)) return;
  if (is_new) wait_until_ = later(now, std::min(request_time / 2, time_for_a_far_server));
  const CallOptions waiting{std::min(wait_until_, call_options.deadline), call_options.cancel_fd};
  // A node counts as late only if it had the whole time.
  if (is_new) nodes.await_stragglers(waiting);
  while (nodes.hold_owed_beside(next) && nodes.hear(waiting.deadline, waiting.cancel_fd)) {
  }
  // A node that does not answer in the whole time does not keep the turn from other holds.
  if (is_new || !nodes.hold_owed_beside(next)) found->second.overtaken = 0;
}

}  // namespace dlock
