#include "quorum/quorum_store.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "lock/lease_renewer.hpp"

namespace dlock {
namespace {

using State = NodeVote::State;

/// How long the servers may differ about a hand-over before the client asks all of them again.
constexpr milliseconds longest_settling{100};
/// How often the client with the most votes asks for the missing votes before all start over.
constexpr int tries_of_a_leader = 4;

/// Throws the error of a server that is named twice, or is a replica.
void throw_if_misused(const QuorumHold& hold) {
  for (const NodeVote& vote : hold.node_votes) {
    if (vote.trouble && vote.trouble->kind() == ErrorKind::usage) throw Error(*vote.trouble);
  }
}

/// The ticket of a newcomer comes from a clock that may be behind. If an older claim with `latest`
/// has a larger ticket, the newcomer takes the next one. Returns whether it did.
bool comes_after(QuorumHold& hold) {
  const Refusal refusal = merged_refusal(hold);
  if (refusal.why != Refusal::Reason::superseded) return false;
  hold.ticket = Ticket{refusal.ticket.value + 1};
  return true;
}

/// The nodes' replies about a release, counted.
struct ReleaseCount {
  std::size_t released = 0, left_queue = 0, not_held = 0;
  std::optional<Who> evicted_by;

  explicit ReleaseCount(const Nodes::Answers& answers) {
    for (const ReleaseResult& result : all_of<ReleaseResult>(answers)) {
      if (result.outcome == Released::yes) ++released;
      if (result.outcome == Released::left_queue) ++left_queue;
      if (result.outcome == Released::not_held) ++not_held;
      if (result.evicted_by) evicted_by = result.evicted_by;
    }
  }
  std::size_t without() const { return left_queue + not_held; }
};

}  // namespace

/// Releases the votes that came, or may still come, for holds that were not acquired.
QuorumStore::~QuorumStore() {
  try {
    for (auto& [name, hold] : holds_) {
      if (!hold.acquired) release_votes(hold);
    }
  } catch (const std::exception&) {
    // The votes expire with their leases.
  }
}

QuorumHold& QuorumStore::hold_of(const Claim& claim, bool is_complete) {
  const auto added =
      holds_.try_emplace({claim.key, claim.token}, nodes_.size(),
                         is_complete ? claim : claim_named(claim.key, claim.token), is_complete);
  QuorumHold& hold = added.first->second;
  // A renewal has made this entry, and knew only the key and the token.
  if (is_complete && !hold.is_complete) hold = QuorumHold(nodes_.size(), claim);
  return hold;
}

Answer QuorumStore::acquire(const Claim& claim, const Ask& asked, const CallOptions& call_options) {
  QuorumHold& hold = hold_of(claim, true);
  // The first request only fixes the ticket: in the queue, it would count as a waiter that bars
  // others.
  const Ask ask{asked.wait && !asked.asks_again, asked.ticket};
  if (ask.wait) nodes_.listen_for(hold);
  const bool is_new = hold.asked_first == Deadline{};
  if (is_new) hold.asked_first = BootClock::now();
  if (ask.ticket && ask.ticket->value != 0) {
    hold.ticket = ask.ticket;
    // The claim comes back under another token, and is as old as before.
    hold.queued = hold.queued || is_new;
  }
  bool has_ticket = take_ticket(hold);
  if (hold.count(State::released) > 0) return split_vote_refusal(hold);
  ++hold.round;
  // A hold that was handed over, but expired before it was confirmed, may be granted again with
  // another fence.
  if (!hold.acquired) hold.fence = Fence{};
  ask_for_votes(hold, ask, call_options.deadline);
  bool newcomer = ask.wait && claim.latest && !std::exchange(hold.queued, true);
  for (int tries = 1;; ++tries) {
    if (auto grant = await_decision(hold, call_options)) {
      pauses_ = first_pauses;
      nodes_.hear_arrived();
      throw_if_misused(hold);
      grant->margin = hold.margin = nodes_.margin_of(hold);
      return std::move(*grant);
    }
    throw_if_misused(hold);
    // The answers contained the nodes' clocks, so the claim can now get one ticket for all nodes.
    if (!std::exchange(has_ticket, take_ticket(hold)) && has_ticket && ask.wait) {
      ask_for_votes(hold, ask, call_options.deadline);
      continue;
    }
    if (std::exchange(newcomer, false) && comes_after(hold)) {
      ask_for_votes(hold, ask, call_options.deadline);
      continue;
    }
    const VoteCount votes = count_votes(hold, BootClock::now());
    const bool go_on = !ask.wait && !votes.decided && votes.leading && tries < tries_of_a_leader;
    if (!go_on) return refused_answer(hold, ask, !asked.wait);
    // Meanwhile the other clients, which see the same votes, release theirs.
    const auto pause = later(BootClock::now(), pauses_.next());
    if (pause >= call_options.deadline) return refused_answer(hold, ask, !asked.wait);
    while (nodes_.hear(pause, call_options.cancel_fd)) {
    }
    ask_for_votes(hold, ask, call_options.deadline);
  }
}

/// Sets the ticket to the nodes' time of the first request, once a clock is known. Returns whether
/// there is a ticket.
bool QuorumStore::take_ticket(QuorumHold& hold) const {
  const auto median = nodes_.clocks().median(hold.asked_first);
  if (!hold.ticket && median) hold.ticket = Ticket{median->count()};
  return hold.ticket.has_value();
}

/// Proposes the median of the nodes' clocks, or this host's clock while none is known. Nodes limit
/// a proposal to within a minute of their own clock. All get the same proposal, so that they
/// usually agree in one round.
void QuorumStore::ask_for_votes(QuorumHold& hold, const Ask& ask, Deadline deadline) {
  const auto now = BootClock::now();
  const auto median = nodes_.clocks().median(now).value_or(wall_now().time_since_epoch());
  nodes_.ask(hold.vote_requests(ask, Fence{median.count()}, now, deadline), &hold);
}

/// Hears replies until enough nodes have the hold, or no longer can.
std::optional<Grant> QuorumStore::await_decision(QuorumHold& hold,
                                                 const CallOptions& call_options) {
  std::optional<Deadline> straggle_until;
  while (true) {
    if (auto grant = decide(hold, call_options.deadline)) return grant;
    const auto now = BootClock::now();
    const bool clear = hold.awaited() == 0 || count_votes(hold, now).decided;
    if (!hold.may_win(now) && clear) return std::nullopt;
    const bool is_fence_open = hold.fence_may_be_found(now);
    if (!is_fence_open && stragglers_are_late(hold, straggle_until)) return std::nullopt;
    auto until = std::min(call_options.deadline, straggle_until.value_or(never));
    if (is_fence_open) until = hold.fence_by;
    if (nodes_.hear(until, call_options.cancel_fd)) continue;
    if (BootClock::now() < call_options.deadline) continue;
    nodes_.give_up(hold);
    return std::nullopt;
  }
}

std::optional<Grant> QuorumStore::decide(QuorumHold& hold, Deadline deadline) {
  QuorumHold::Decision decision = hold.decide(BootClock::now(), deadline);
  nodes_.ask(std::move(decision.requests), &hold);
  return decision.grant;
}

/// Whether to stop waiting for the nodes that still owe an answer: enough others have answered, and
/// each of these nodes has had straggler_wait since then, or was late before.
bool QuorumStore::stragglers_are_late(const QuorumHold& hold,
                                      std::optional<Deadline>& straggle_until) {
  if (!hold.is_answered()) {
    straggle_until.reset();
    return false;
  }
  const auto now = BootClock::now();
  if (!straggle_until) straggle_until = later(now, straggler_wait);
  bool all_late = true;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!hold.node_votes[i].awaited) continue;
    if (now >= *straggle_until) nodes_.note_late(i);
    all_late = all_late && nodes_.is_late(i);
  }
  return all_late;
}

/// Returns why the claim was not acquired, and releases its votes if needed. With `for_good`, no
/// request with this token follows, so a vote that still comes would last until its lease expires.
Answer QuorumStore::refused_answer(QuorumHold& hold, const Ask& ask, bool for_good) {
  const auto now = BootClock::now();
  const auto unknown = hold.unknown();
  const VoteCount votes = count_votes(hold, now);
  const bool too_few_answers = nodes_.size() - unknown < hold.needed();
  // A semaphore needs so many votes that a single refusal may decide.
  if (too_few_answers && votes.mine + unknown >= hold.needed()) nodes_.throw_no_majority_of(hold);
  if (votes.mine >= hold.needed()) return split_vote_refusal(hold);
  Refusal refusal = merged_refusal(hold);
  const bool may_have_some = votes.mine > 0 || (for_good && hold.awaited() > 0);
  if (refusal.why != Refusal::Reason::held) {
    if (may_have_some) release_votes(hold);
    return refusal;
  }
  if (auto unready = nodes_.too_few_votes(hold)) return *unready;
  if (votes.decided) {
    if (!may_have_some) return refusal;
    refusal.ask_again_in = std::min(refusal.ask_again_in, pauses_.next());
    // After an expiry or a release, the servers need some time until each has granted the key.
    if (!hold.outvoted_since) hold.outvoted_since = now;
    const bool settled = now >= later(*hold.outvoted_since, longest_settling);
    if (!ask.wait || settled) release_votes(hold);
    // A server that has released this token refuses it; with a new token, all servers may vote.
    return ask.wait && settled ? split_vote_refusal(hold) : refusal;
  }
  hold.outvoted_since.reset();
  if (!ask.wait || (votes.mine > 0 && !votes.leading)) return split_vote_refusal(hold);
  refusal.ask_again_in = std::min(refusal.ask_again_in, pauses_.next());
  return refusal;
}

Refusal QuorumStore::split_vote_refusal(const QuorumHold& hold) {
  Refusal refusal = merged_refusal(hold);
  refusal.why = Refusal::Reason::split;
  refusal.ask_again_in = pauses_.next();
  return refusal;
}

/// Releases the votes without waiting for the answers.
void QuorumStore::release_votes(QuorumHold& hold) {
  nodes_.ask(hold.release_requests(BootClock::now()), nullptr);
}

Wake QuorumStore::sleep(const Claim& claim, Deadline until, int cancel_fd) {
  QuorumHold& hold = holds_.at({claim.key, claim.token});
  const auto granted = [&] { return hold.count(State::announced) + hold.count(State::held); };
  auto known = granted();
  Deadline end = until;
  while (true) {
    const auto now = BootClock::now();
    if (hold.count(State::announced) + hold.holding(now) >= hold.needed()) {
      return Wake{Wake::Reason::granted, {}};
    }
    if (nodes_.size() - hold.count(State::failed) < hold.needed()) {
      nodes_.throw_no_majority_of(hold);
    }
    if (std::exchange(known, granted()) < known) {
      const auto settling = std::min(longest_settling, request_timeout(claim.ttl));
      end = std::min(end, later(now, settling));
    }
    try {
      if (!nodes_.hear(end, cancel_fd)) return Wake{Wake::Reason::due, {}};
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::interrupted) throw;
      return Wake{Wake::Reason::interrupted, {}};
    }
    if (hold.change) return *std::exchange(hold.change, std::nullopt);
  }
}

Renewed QuorumStore::renew(const Claim& claim, const RenewalOptions& terms,
                           const CallOptions& call_options) {
  QuorumHold& hold = hold_of(claim, terms.granted.has_value());
  if (terms.granted) {
    // The caller knows the whole claim, whichever store acquired the hold, so a node that lacks the
    // hold can record it.
    hold.claim.who.command_pid = claim.who.command_pid;
    if (!hold.acquired) hold.fence = *terms.granted;
    hold.acquired = true;
  }
  nodes_.hear_arrived();
  if (hold.acquired && hold.round > 1) hold.margin = nodes_.margin_of(hold);
  const bool is_new = !hold.acquired;
  nodes_.ask(hold.renewal_requests(terms, BootClock::now(), call_options.deadline), &hold);
  while (true) {
    if (auto grant = decide(hold, call_options.deadline)) {
      if (is_new) {
        pauses_ = first_pauses;
        nodes_.hear_arrived();
        throw_if_misused(hold);
      }
      grant->margin = hold.margin;
      return {std::move(grant), {}, hold.stop_asked_by};
    }
    const auto without = hold.count(State::gone) + hold.count(State::released);
    const bool is_gone = without > nodes_.size() - hold.needed();
    const bool at_odds = hold.confirmed() >= hold.needed() && !hold.may_win(BootClock::now());
    if (is_gone || at_odds) return {std::nullopt, hold.evicted_by};
    if (hold.confirmed() + hold.awaited() < hold.needed()) nodes_.throw_no_majority_of(hold);
    if (nodes_.hear(call_options.deadline, call_options.cancel_fd)) continue;
    nodes_.give_up(hold);
    nodes_.throw_no_majority_of(hold);
  }
}

void QuorumStore::suspend(Suspension why) {
  if (why == Suspension::rest) return;
  // After a fork, the process that exits last would release votes that the other process uses.
  for (auto& [name, hold] : holds_) {
    if (hold.acquired) continue;
    release_votes(hold);
    nodes_.forget(hold);
  }
  std::erase_if(holds_, [](const auto& each) { return !each.second.acquired; });
  nodes_.begin_anew();
}

std::vector<Error> QuorumStore::take_troubles() {
  auto troubles = nodes_.take_troubles();
  const std::string caveat = std::exchange(caveat_, "");
  if (!caveat.empty()) {
    troubles.emplace(troubles.begin(), ErrorKind::unavailable, name() + ": " + caveat);
  }
  return troubles;
}

std::string QuorumStore::name() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < nodes_.size(); ++i) names.push_back(nodes_.name(i));
  return "the majority of " + joined(names, ", ");
}

// The operations that send one request to all servers at once, without a vote before it.

ReleaseResult QuorumStore::release(const Claim& claim, const ReleaseOptions& how,
                                   const CallOptions& call_options) {
  const auto found = holds_.find({claim.key, claim.token});
  const QuorumHold* const hold = found == holds_.end() ? nullptr : &found->second;
  const auto majority = nodes_.majority(), minority = nodes_.size() - majority;
  const auto enough = [&](const Nodes::Answers& answers) {
    const ReleaseCount count(answers);
    if (count.released >= majority || count.without() > minority) return true;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      // A node that never answered before is not expected to answer now.
      const bool is_silent = hold != nullptr && hold->node_votes[i].is_silent();
      if (nodes_.owes(i) && !is_silent) return false;
    }
    return true;
  };
  const auto answers =
      nodes_.poll(Release{claim_named(claim.key, claim.token), how}, call_options, enough);
  const ReleaseCount count(answers);
  nodes_.note_sent_release(answers, call_options);
  // Every server counts for a semaphore, which needs more than a majority. The same goes for a hold
  // of another process, whose servers are unknown here.
  const bool each_counts = hold == nullptr || hold->needed() > majority;
  if (each_counts) nodes_.await_stragglers(time_for_a_far_server, call_options.deadline);
  const bool was_acquired = hold == nullptr || hold->acquired;
  if (was_acquired && count.released < majority && count.released + count.without() < majority) {
    nodes_.throw_no_majority_of(answers);
  }
  if (hold != nullptr) {
    nodes_.forget(*hold);
    holds_.erase(found);
  }
  if (count.released > 0 && count.without() <= minority) return {Released::yes};
  const bool left_queue = count.left_queue > 0;
  return {left_queue ? Released::left_queue : Released::not_held, count.evicted_by};
}

/// Each server evicts the holders that it has, by its own fences: until the first renewals of a
/// hold, its fence may differ from server to server.
std::vector<Holder> QuorumStore::evict(const LockKey& key, const Eviction& how,
                                       const CallOptions& call_options) {
  const MemberCall evict = [=](Member& member, const CallOptions& options) {
    return member.evict(key, how, options);
  };
  const auto answers = nodes_.poll(evict, call_options);
  // An eviction takes two requests, one after the other, to each server.
  nodes_.await_stragglers(2 * time_for_a_far_server, call_options.deadline);
  const auto lists = all_of<std::vector<Holder>>(answers);
  if (lists.size() < nodes_.majority()) nodes_.throw_no_majority_of(answers);
  std::vector<Holder> evicted;
  for (const auto& views : holders_by_owner(lists)) evicted.push_back(views.front());
  return evicted;
}

std::vector<KeyState> QuorumStore::inspect(const Query& query, const CallOptions& call_options) {
  const MemberCall inspect = [=](Member& member, const CallOptions& options) {
    return member.inspect(query, options);
  };
  const auto answers = nodes_.poll(inspect, call_options);
  for (const Error& error : all_of<Error>(answers)) {
    if (error.kind() == ErrorKind::usage) throw Error(error);
  }
  const auto lists = all_of<std::vector<KeyState>>(answers);
  if (lists.size() < nodes_.majority()) nodes_.throw_no_majority_of(answers);
  return merged_states(query, lists, nodes_.size());
}

Fence QuorumStore::record_max(const LockKey& resource, Fence fence,
                              const CallOptions& call_options) {
  Fence largest = fence;
  const auto enough = [&](const Nodes::Answers& answers) {
    std::size_t recorded = 0;
    for (const Fence in_register : all_of<Fence>(answers)) {
      if (in_register == fence) ++recorded;
      largest = std::max(largest, in_register);
    }
    return largest > fence || recorded >= nodes_.majority();
  };
  const MemberCall record = [=](Member& member, const CallOptions& options) {
    return member.record_max(resource, fence, options);
  };
  const auto answers = nodes_.poll(record, call_options, enough);
  if (enough(answers)) return largest;
  nodes_.throw_no_majority_of(answers);
}

}  // namespace dlock
