// What is said of a lock that was not had, and of one that not all members hold.

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/join.hpp"
#include "quorum/merge.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock {

using State = Ballot::State;

/// Why it was not had, and what is to become of the votes.
Answer QuorumStore::not_had(const Name& name, const Ask& ask) {
  Tenure& tenure = tenures_.at(name);
  const auto now = BootClock::now();
  const auto unknown = tenure.unknown();
  const auto holding = tenure.holding(now).size();
  const bool too_few_said = tenure.ballots.size() - unknown < tenure.needed();
  // A semaphore needs so many votes that a single refusal may decide.
  if (too_few_said && holding + unknown >= tenure.needed()) no_majority(tenure);
  if (holding >= tenure.needed()) return split(name);
  Refusal refusal = merged_refusal(tenure);
  const Contest contest = dlock::contest(tenure, now);
  if (refusal.why != Refusal::Why::held) {
    if (contest.mine > 0) give_votes_back(name);
    return refusal;
  }
  if (auto unready = too_few_votes(tenure)) return *unready;
  if (contest.decided) {
    if (contest.mine == 0) return refusal;
    refusal.ask_again_in = std::min(refusal.ask_again_in, next_pause(name.first));
    // Where leases end, or are given back, the servers follow one another.
    if (!tenure.outvoted_since) tenure.outvoted_since = now;
    const bool settled = now >= later(*tenure.outvoted_since, longest_settling);
    if (!ask.wait || settled) give_votes_back(name);
    // Those it was given back to know the token no more: with another, all may vote.
    return ask.wait && settled ? split(name) : refusal;
  }
  tenure.outvoted_since.reset();
  if (!ask.wait || (contest.mine > 0 && !contest.leading)) return split(name);
  refusal.ask_again_in = std::min(refusal.ask_again_in, next_pause(name.first));
  return refusal;
}

/// Where a majority takes servers that may have forgotten a lease.
std::optional<Refusal> QuorumStore::too_few_votes(const Tenure& tenure) const {
  std::vector<milliseconds> waits;
  std::vector<std::string> names;
  std::size_t able = 0;  ///< or may be
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    const Ballot& ballot = tenure.ballots[i];
    if (ballot.is_silent() || ballot.votes()) {
      ++able;
      continue;
    }
    waits.push_back(ballot.no_vote_for);
    names.push_back(council_->name(i));
  }
  if (able >= tenure.needed() || able + waits.size() < tenure.needed()) return std::nullopt;
  std::sort(waits.begin(), waits.end());
  Refusal refusal = merged_refusal(tenure);
  refusal.why = Refusal::Why::unready;
  refusal.ask_again_in = waits[tenure.needed() - able - 1];
  refusal.reason = "too few of " + std::to_string(tenure.ballots.size()) +
                   " servers have a vote: one that was restarted, flushed or never used before " +
                   "may have forgotten a lease, and has none for another " +
                   human_duration(refusal.ask_again_in) + ": " + joined(names, ", ");
  return refusal;
}

Refusal QuorumStore::split(const Name& name) {
  Refusal refusal = merged_refusal(tenures_.at(name));
  refusal.why = Refusal::Why::split;
  refusal.ask_again_in = next_pause(name.first);
  return refusal;
}

std::optional<Margin> QuorumStore::margin(const Claim& claim) {
  const auto found = tenures_.find({claim.key, claim.token});
  return found == tenures_.end() ? std::nullopt : found->second.margin;
}

Margin QuorumStore::margin_now(const Tenure& tenure) {
  Margin margin;
  margin.needed = tenure.needed();
  margin.servers = tenure.ballots.size();
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    const Ballot& ballot = tenure.ballots[i];
    const bool held = ballot.state == State::held && ballot.votes() && ballot.round == tenure.round;
    const bool just_asked = ballot.awaited && BootClock::now() < later(tenure.asked, for_the_rest);
    // All were told the fence that was decided on, after their votes.
    const bool differs = held && tenure.had && ballot.fence != tenure.fence;
    if ((held && !differs) || just_asked) {
      ++margin.held;
      continue;
    }
    const std::string what = lack(tenure, i).value_or(
        council_->name(i) +
        (differs ? ": it has another fence than it was told" : ": it lacks the hold"));
    margin.missing += (margin.missing.empty() ? "" : "; ") + what;
    const auto trouble = untold_.extract(i);
    if (trouble.empty()) continue;
    const Trouble kind = trouble.mapped().trouble();
    told_.emplace(i, kind);
    margin.misnamed = margin.misnamed || kind == Trouble::usage;
  }
  return margin;
}

std::optional<std::string> QuorumStore::lack(const Tenure& tenure, std::size_t member) const {
  const Ballot& ballot = tenure.ballots[member];
  const std::string name = council_->name(member);
  if (!ballot.votes()) {
    return name + ": no vote for another " + human_duration(ballot.no_vote_for);
  }
  if (ballot.trouble) return ballot.trouble->what();
  if (ballot.awaited) return name + ": no answer";
  if (ballot.state == State::gone || ballot.state == State::returned) {
    return name + ": it lacks the hold";
  }
  return std::nullopt;
}

void QuorumStore::no_majority(const Tenure& tenure) const {
  std::vector<std::optional<Error>> troubles;
  for (std::size_t i = 0; i < tenure.ballots.size(); ++i) {
    const auto& trouble = tenure.ballots[i].trouble;
    const auto why = lack(tenure, i);
    troubles.emplace_back();
    if (why) troubles.back() = Error(trouble ? trouble->trouble() : Trouble::unavailable, *why);
  }
  throw_no_majority(troubles);
}

void QuorumStore::no_majority(const Answers& answers) const {
  std::vector<std::optional<Error>> troubles;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i]) {
      troubles.emplace_back(Error(Trouble::unavailable, council_->name(i) + ": no answer in time"));
    } else if (const auto* error = std::get_if<Error>(&answers[i]->response)) {
      troubles.emplace_back(*error);
    } else {
      troubles.emplace_back();
    }
  }
  throw_no_majority(troubles);
}

}  // namespace dlock
