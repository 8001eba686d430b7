// What is said of a lock that was not had, and of one that not all members hold.

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/join.hpp"
#include "quorum/merge.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock {

using State = NodeVote::State;

/// Why it was not had, and what is to become of the votes.
Answer QuorumStore::not_had(const Name& name, const Ask& ask) {
  QuorumHold& quorum_hold = quorum_holds_.at(name);
  const auto now = BootClock::now();
  const auto unknown = quorum_hold.unknown();
  const auto holding = quorum_hold.holding(now).size();
  const bool too_few_said = quorum_hold.node_votes.size() - unknown < quorum_hold.needed();
  // A semaphore needs so many votes that a single refusal may decide.
  if (too_few_said && holding + unknown >= quorum_hold.needed()) no_majority(quorum_hold);
  if (holding >= quorum_hold.needed()) return split(name);
  Refusal refusal = merged_refusal(quorum_hold);
  const VoteCount count_votes = dlock::count_votes(quorum_hold, now);
  if (refusal.why != Refusal::Reason::held) {
    if (count_votes.mine > 0) give_votes_back(name);
    return refusal;
  }
  if (auto unready = too_few_votes(quorum_hold)) return *unready;
  if (count_votes.decided) {
    if (count_votes.mine == 0) return refusal;
    refusal.ask_again_in = std::min(refusal.ask_again_in, next_pause(name.first));
    // Where leases end, or are given back, the servers follow one another.
    if (!quorum_hold.outvoted_since) quorum_hold.outvoted_since = now;
    const bool settled = now >= later(*quorum_hold.outvoted_since, longest_settling);
    if (!ask.wait || settled) give_votes_back(name);
    // Those it was given back to know the token no more: with another, all may vote.
    return ask.wait && settled ? split(name) : refusal;
  }
  quorum_hold.outvoted_since.reset();
  if (!ask.wait || (count_votes.mine > 0 && !count_votes.leading)) return split(name);
  refusal.ask_again_in = std::min(refusal.ask_again_in, next_pause(name.first));
  return refusal;
}

/// The refusal of a claim that needs the votes of servers that may have forgotten a lease.
std::optional<Refusal> QuorumStore::too_few_votes(const QuorumHold& quorum_hold) const {
  std::vector<milliseconds> waits;
  std::vector<std::string> names;
  std::size_t able = 0;  ///< or may be
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    const NodeVote& node_vote = quorum_hold.node_votes[i];
    if (node_vote.is_silent() || node_vote.votes()) {
      ++able;
      continue;
    }
    waits.push_back(node_vote.quarantined_for);
    names.push_back(nodes_->name(i));
  }
  if (able >= quorum_hold.needed() || able + waits.size() < quorum_hold.needed())
    return std::nullopt;
  std::sort(waits.begin(), waits.end());
  Refusal refusal = merged_refusal(quorum_hold);
  refusal.why = Refusal::Reason::unready;
  refusal.ask_again_in = waits[quorum_hold.needed() - able - 1];
  refusal.reason =
      "too few of " + std::to_string(quorum_hold.node_votes.size()) +
      " servers have a vote: one that was restarted or flushed, or has evicted keys, " +
      "may have forgotten a lease, and has none for another " +
      human_duration(refusal.ask_again_in) + ": " + joined(names, ", ");
  return refusal;
}

Refusal QuorumStore::split(const Name& name) {
  Refusal refusal = merged_refusal(quorum_holds_.at(name));
  refusal.why = Refusal::Reason::split;
  refusal.ask_again_in = next_pause(name.first);
  return refusal;
}

std::optional<QuorumMargin> QuorumStore::margin(const Claim& claim) {
  const auto found = quorum_holds_.find({claim.key, claim.token});
  return found == quorum_holds_.end() ? std::nullopt : found->second.margin;
}

QuorumMargin QuorumStore::margin_now(const QuorumHold& quorum_hold) {
  QuorumMargin margin;
  margin.needed = quorum_hold.needed();
  margin.servers = quorum_hold.node_votes.size();
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    const NodeVote& node_vote = quorum_hold.node_votes[i];
    const bool held =
        node_vote.state == State::held && node_vote.votes() && node_vote.round == quorum_hold.round;
    const bool just_asked =
        node_vote.awaited && BootClock::now() < later(quorum_hold.asked, straggler_wait);
    // All were told the fence that was decided on, after their votes.
    const bool differs = held && quorum_hold.had && node_vote.fence != quorum_hold.fence;
    if ((held && !differs) || just_asked) {
      ++margin.held;
      continue;
    }
    const std::string what =
        lack(quorum_hold, i)
            .value_or(nodes_->name(i) + (differs ? ": it has another fence than it was told"
                                                 : ": it lacks the hold"));
    margin.missing += (margin.missing.empty() ? "" : "; ") + what;
    const auto trouble = untold_.extract(i);
    if (trouble.empty()) continue;
    const ErrorKind kind = trouble.mapped().trouble();
    told_.emplace(i, kind);
    margin.misnamed = margin.misnamed || kind == ErrorKind::usage;
  }
  return margin;
}

std::optional<std::string> QuorumStore::lack(const QuorumHold& quorum_hold,
                                             std::size_t member) const {
  const NodeVote& node_vote = quorum_hold.node_votes[member];
  const std::string name = nodes_->name(member);
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

void QuorumStore::no_majority(const QuorumHold& quorum_hold) const {
  std::vector<std::optional<Error>> troubles;
  for (std::size_t i = 0; i < quorum_hold.node_votes.size(); ++i) {
    const auto& trouble = quorum_hold.node_votes[i].trouble;
    const auto why = lack(quorum_hold, i);
    troubles.emplace_back();
    if (why) troubles.back() = Error(trouble ? trouble->trouble() : ErrorKind::unavailable, *why);
  }
  throw_no_majority(troubles);
}

void QuorumStore::no_majority(const Answers& answers) const {
  std::vector<std::optional<Error>> troubles;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i]) {
      troubles.emplace_back(Error(ErrorKind::unavailable, nodes_->name(i) + ": no answer in time"));
    } else if (const auto* error = std::get_if<Error>(&answers[i]->response)) {
      troubles.emplace_back(*error);
    } else {
      troubles.emplace_back();
    }
  }
  throw_no_majority(troubles);
}

}  // namespace dlock
