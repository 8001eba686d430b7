#include "quorum/hold_report.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "quorum/merge.hpp"

namespace dlock {
namespace {

using State = NodeVote::State;

/// Why a node does not count for a hold, if there is a reason.
std::optional<std::string> lack(const QuorumHold& hold, std::size_t member, const Nodes& nodes) {
  const NodeVote& node_vote = hold.node_votes[member];
  const std::string name = nodes.name(member);
  if (!node_vote.votes()) {
    return name + ": no vote for another " + human_duration(node_vote.quarantined_for);
  }
  if (node_vote.trouble) return node_vote.trouble->what();
  if (node_vote.awaited) return name + ": no answer";
  if (node_vote.state == State::gone || node_vote.state == State::returned) {
    return name + ": it lacks the hold";
  }
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> too_few_votes(const QuorumHold& hold, const Nodes& nodes) {
  std::vector<milliseconds> waits;
  std::vector<std::string> names;
  std::size_t able = 0;  ///< or may be
  for (std::size_t i = 0; i < hold.node_votes.size(); ++i) {
    const NodeVote& node_vote = hold.node_votes[i];
    if (node_vote.is_silent() || node_vote.votes()) {
      ++able;
      continue;
    }
    waits.push_back(node_vote.quarantined_for);
    names.push_back(nodes.name(i));
  }
  if (able >= hold.needed() || able + waits.size() < hold.needed()) return std::nullopt;
  std::sort(waits.begin(), waits.end());
  Refusal refusal = merged_refusal(hold);
  refusal.why = Refusal::Reason::unready;
  refusal.ask_again_in = waits[hold.needed() - able - 1];
  refusal.reason =
      "too few of " + std::to_string(hold.node_votes.size()) +
      " servers have a vote: one that was restarted or flushed, or has evicted keys, " +
      "may have forgotten a lease, and has none for another " +
      human_duration(refusal.ask_again_in) + ": " + joined(names, ", ");
  return refusal;
}

QuorumMargin margin_of(const QuorumHold& hold, Nodes& nodes) {
  QuorumMargin margin;
  margin.needed = hold.needed();
  margin.servers = hold.node_votes.size();
  for (std::size_t i = 0; i < hold.node_votes.size(); ++i) {
    const NodeVote& node_vote = hold.node_votes[i];
    const bool held =
        node_vote.state == State::held && node_vote.votes() && node_vote.round == hold.round;
    const bool just_asked =
        node_vote.awaited && BootClock::now() < later(hold.asked, straggler_wait);
    // All were told the fence that was decided on, after their votes.
    const bool differs = held && hold.acquired && node_vote.fence != hold.fence;
    if ((held && !differs) || just_asked) {
      ++margin.held;
      continue;
    }
    const std::string what =
        lack(hold, i, nodes)
            .value_or(nodes.name(i) + (differs ? ": it has another fence than it was told"
                                               : ": it lacks the hold"));
    margin.missing += (margin.missing.empty() ? "" : "; ") + what;
    margin.misnamed = nodes.take_trouble(i) == ErrorKind::usage || margin.misnamed;
  }
  return margin;
}

void throw_no_majority_of(const QuorumHold& hold, const Nodes& nodes) {
  std::vector<std::optional<Error>> troubles;
  for (std::size_t i = 0; i < hold.node_votes.size(); ++i) {
    const auto& trouble = hold.node_votes[i].trouble;
    const auto why = lack(hold, i, nodes);
    troubles.emplace_back();
    if (why) troubles.back() = trouble.value_or(Error(ErrorKind::unavailable, "")).reworded(*why);
  }
  throw_no_majority(troubles);
}

}  // namespace dlock
