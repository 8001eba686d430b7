#include "quorum/hold_state.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace dlock {
namespace {

using State = NodeVote::State;

/// Whether two servers name the same owner. A cooldown has no owner: its process identifies it.
bool is_same(const Holder& a, const Holder& b) {
  return a.kept || b.kept ? a.who == b.who : a.owner == b.owner;
}

bool is_same(const Waiter& a, const Waiter& b) { return a.owner == b.owner && a.who == b.who; }

/// One owner or waiter, as the nodes see it.
template <typename One>
using Views = std::vector<One>;

/// Adds one node's list to `all`. Entries of one list are different holds, even if they look alike,
/// such as several cooldowns of one process; every node lists the oldest of those first.
template <typename One>
void add_views(std::vector<Views<One>>& all, const std::vector<One>& list) {
  std::vector<bool> taken(all.size(), false);
  for (const One& one : list) {
    std::size_t i = 0;
    while (i < taken.size() && (taken[i] || !is_same(all[i].front(), one))) ++i;
    if (i == taken.size()) {
      all.emplace_back();
      taken.push_back(false);
    }
    all[i].push_back(one);
    taken[i] = true;
  }
}

template <typename Value, typename One, typename Field>
Value ranked(const Views<One>& views, std::size_t place, const Field& field) {
  std::vector<Value> values;
  for (const One& view : views) values.push_back(field(view));
  std::sort(values.begin(), values.end());
  return values[std::min(place, values.size()) - 1];
}

/// The votes that a holder needs: the most that any of the limits in its views requires.
std::size_t votes_for(const Views<Holder>& views, std::size_t servers) {
  std::size_t needed = 0;
  for (const Holder& view : views) needed = std::max(needed, votes_needed(servers, view.limit));
  return needed;
}

/// Merges the views of one holder into what enough servers agree on. The views may differ, because
/// the servers have received different requests and have different clocks.
Holder agreed(const Views<Holder>& views, std::size_t servers, std::size_t needed) {
  Holder holder =
      *std::max_element(views.begin(), views.end(),
                        [](const Holder& a, const Holder& b) { return a.holds < b.holds; });
  holder.held_on = static_cast<int>(views.size());
  holder.servers = holder.library.empty() ? static_cast<int>(servers) : 0;
  holder.fence = ranked<Fence>(views, needed, [](const Holder& view) { return view.fence; });
  holder.lease_left = -ranked<milliseconds>(
      views, needed, [](const Holder& view) { return -view.lease_left.value_or(milliseconds(0)); });
  holder.kept = ranked<bool>(views, needed, [](const Holder& view) { return view.kept; });
  for (const Holder& view : views) {
    if (view.who.command_pid != 0) holder.who.command_pid = view.who.command_pid;
    holder.acquired_at = std::min(holder.acquired_at, view.acquired_at);
    holder.held = std::max(holder.held, view.held);
  }
  return holder;
}

Waiter agreed(const Views<Waiter>& views) {
  Waiter waiter = views.front();
  for (const Waiter& view : views) {
    waiter.ticket = std::min(waiter.ticket, view.ticket);
    waiter.waiting = std::max(waiter.waiting, view.waiting);
  }
  return waiter;
}

struct KeyViews {
  std::vector<Views<Holder>> holders;
  std::vector<Views<Waiter>> waiters;
  std::optional<LastGrant> last;  ///< the one with the largest fence
};

/// Leaves out holders and waiters with so few votes that the silent servers cannot supply the rest.
/// A holder that waits at nodes without its hold is not listed as a waiter.
KeyState merged_state(const LockKey& key, const KeyViews& views_of_key, std::size_t servers,
                      std::size_t silent) {
  const auto enough = servers / 2 + 1 - std::min(silent, servers / 2);
  KeyState state{key, {}, {}};
  for (const auto& views : views_of_key.holders) {
    const auto needed = votes_for(views, servers);
    if (views.size() + silent >= needed) state.holders.push_back(agreed(views, servers, needed));
  }
  for (const auto& views : views_of_key.waiters) {
    const bool is_inside =
        std::any_of(state.holders.begin(), state.holders.end(), [&](const Holder& holder) {
          return holder.owner == views.front().owner && holder.who == views.front().who;
        });
    if (views.size() >= enough && !is_inside) state.waiters.push_back(agreed(views));
  }
  std::stable_sort(state.holders.begin(), state.holders.end(),
                   [](const Holder& a, const Holder& b) { return a.acquired_at < b.acquired_at; });
  std::stable_sort(state.waiters.begin(), state.waiters.end(),
                   [](const Waiter& a, const Waiter& b) { return a.ticket < b.ticket; });
  for (std::size_t i = 0; i < state.waiters.size(); ++i) state.waiters[i].position = i + 1;
  if (state.holders.empty()) state.last = views_of_key.last;
  return state;
}

/// Another owner that holds or wants the key, as each node that voted for it sees it.
using Competitor = std::vector<Holder>;

std::vector<Competitor> competitors_of(const QuorumHold& hold) {
  std::vector<Competitor> all;
  for (const NodeVote& vote : hold.node_votes) {
    if (vote.state == State::refused) add_views(all, vote.refusal.held_by);
  }
  return all;
}

/// Whether the competitor has the votes it needs. In a race only the votes that are known count. A
/// competitor that has held longer than a race lasts may also have votes of nodes that have not
/// answered.
bool is_established(const Competitor& competitor, const QuorumHold& hold) {
  constexpr milliseconds older_than_a_race{1000};
  const Holder& holder = competitor.front();
  const std::size_t needed = votes_needed(hold.node_votes.size(), holder.limit);
  const std::size_t unseen = hold.unknown() + hold.awaited();
  return competitor.size() >= needed ||
         (competitor.size() + unseen >= needed && holder.held >= older_than_a_race);
}

/// Whether exactly one of them is a reader: no node admits both.
bool apart(Limit a, Limit b) { return a.unlimited() != b.unlimited(); }

bool has_room(const Refusal& refusal, Limit limit) {
  const auto inside = static_cast<std::int64_t>(refusal.holders) + 1;
  return limit.admits(inside) &&
         std::all_of(refusal.held_by.begin(), refusal.held_by.end(), [&](const Holder& holder) {
           return holder.limit.admits(inside) && !apart(limit, holder.limit);
         });
}

}  // namespace

std::vector<std::vector<Holder>> holders_by_owner(
    const std::vector<std::vector<Holder>>& node_lists) {
  std::vector<Views<Holder>> all;
  for (const auto& list : node_lists) add_views(all, list);
  return all;
}

std::vector<KeyState> merged_states(const Query& query,
                                    const std::vector<std::vector<KeyState>>& node_lists,
                                    std::size_t servers) {
  std::map<LockKey, KeyViews> by_key;
  for (const auto& states : node_lists) {
    for (const KeyState& state : states) {
      KeyViews& views = by_key[state.key];
      add_views(views.holders, state.holders);
      add_views(views.waiters, state.waiters);
      const auto age = [](const LastGrant& last) {
        return std::pair(last.fence, last.end.has_value());
      };
      const bool later = state.last && (!views.last || age(*views.last) < age(*state.last));
      if (later) views.last = state.last;
    }
  }
  const auto silent = servers - node_lists.size();
  std::vector<KeyState> all;
  for (const LockKey& key : query.keys) {
    const auto views = by_key.extract(key);
    all.push_back(merged_state(key, views ? views.mapped() : KeyViews{}, servers, silent));
  }
  for (const auto& [key, views] : by_key) {
    KeyState state = merged_state(key, views, servers, silent);
    if (query.lists(state)) all.push_back(std::move(state));
  }
  return all;
}

VoteCount count_votes(const QuorumHold& hold, Deadline now) {
  VoteCount count;
  count.mine = hold.holding(now);
  const Limit limit = hold.claim.limit;
  std::size_t established = 0;
  auto room = static_cast<std::size_t>(limit.unlimited() ? largest_limit : limit.owners);
  // A node where this claim is first in the queue may admit it next.
  std::size_t next_there = 0;
  std::size_t barred_by_queues = 0;  ///< nodes that have room, but a queue of other waiters
  bool some_are_unnamed = false;     ///< a refusal names only the first few holders
  for (const NodeVote& vote : hold.node_votes) {
    if (vote.state != State::refused) continue;
    const Refusal& refusal = vote.refusal;
    if (refusal.ahead == 0) ++next_there;
    if (refusal.waiting > 0 && has_room(refusal, limit)) ++barred_by_queues;
    some_are_unnamed = some_are_unnamed || refusal.holders > refusal.held_by.size();
  }
  count.leading = count.mine > 0 && count.mine + hold.unknown() + next_there >= hold.needed();
  for (const Competitor& competitor : competitors_of(hold)) {
    const Limit theirs = competitor.front().limit;
    if (is_established(competitor, hold)) {
      ++established;
      if (!theirs.unlimited()) room = std::min(room, static_cast<std::size_t>(theirs.owners));
      if (apart(limit, theirs)) room = 0;
      continue;
    }
    // Nodes that have admitted us do not say which others they have admitted.
    const bool excluded = limit == exclusive || theirs == exclusive || apart(limit, theirs);
    const std::size_t votes = competitor.size() + (excluded ? 0 : count.mine);
    const bool has_smaller_owner = competitor.front().owner < hold.claim.owner.text;
    if (votes > count.mine || (votes == count.mine && has_smaller_owner)) count.leading = false;
  }
  const auto spare = hold.node_votes.size() - hold.needed();
  count.decided = established >= room || some_are_unnamed || barred_by_queues > spare;
  return count;
}

Refusal merged_refusal(const QuorumHold& hold) {
  Refusal merged;
  std::vector<milliseconds> ends;
  std::vector<std::size_t> aheads;
  for (const NodeVote& vote : hold.node_votes) {
    if (vote.state != State::refused) continue;
    const Refusal& refusal = vote.refusal;
    if (refusal.why != Refusal::Reason::held) merged.why = refusal.why;
    merged.holders = std::max(merged.holders, refusal.holders);
    merged.waiting = std::max(merged.waiting, refusal.waiting);
    merged.unordered = refusal.unordered;
    // Once enough nodes are free, the next waiter is admitted: the other nodes do not matter.
    ends.push_back(refusal.ask_again_in);
    aheads.push_back(refusal.ahead);
  }
  std::sort(ends.begin(), ends.end());
  const auto held = hold.count(State::held);
  const auto lacking = hold.needed() - std::min(held, hold.needed() - 1);
  if (!ends.empty()) {
    const auto decisive = std::min(lacking, ends.size()) - 1;
    merged.ask_again_in = ends[decisive];
    std::sort(aheads.begin(), aheads.end());
    merged.ahead = aheads[decisive];
  }
  std::vector<Competitor> competitors = competitors_of(hold);
  std::stable_sort(competitors.begin(), competitors.end(),
                   [](const Competitor& a, const Competitor& b) { return a.size() > b.size(); });
  for (const Competitor& competitor : competitors) merged.held_by.push_back(competitor.front());
  // Competitors with a vote or two hold nothing if another has enough.
  if (merged.held_by.size() > merged.holders)
    merged.held_by.resize(std::max<std::size_t>(1, merged.holders));
  merged.ticket = hold.ticket.value_or(Ticket{});
  for (const NodeVote& vote : hold.node_votes) {
    const Refusal& refusal = vote.refusal;
    const bool newer = vote.state == State::refused && refusal.why == Refusal::Reason::superseded &&
                       (merged.why != refusal.why || merged.ticket < refusal.ticket);
    if (!newer) continue;
    merged.why = refusal.why;
    merged.held_by = refusal.held_by;
    merged.ticket = refusal.ticket;
  }
  return merged;
}

}  // namespace dlock
