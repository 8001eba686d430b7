#include "quorum/merge.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace dlock {
namespace {

/// The same owner on another server; a kept hold has none, and is known by its process.
bool is_same(const Holder& a, const Holder& b) {
  if (a.kept != b.kept) return false;
  return a.kept ? a.who == b.who : a.owner == b.owner;
}

bool is_same(const Waiter& a, const Waiter& b) { return a.owner == b.owner && a.who == b.who; }

/// Servers differ in what they have seen, and in their clocks.
void merge_into(std::vector<Holder>& all, const Holder& holder) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Holder& other) { return is_same(other, holder); });
  if (found == all.end()) {
    all.push_back(holder);
    all.back().held_on = 1;
    return;
  }
  ++found->held_on;
  found->acquired_at = std::min(found->acquired_at, holder.acquired_at);
  found->held = std::max(found->held, holder.held);
  found->lease_left = std::max(found->lease_left, holder.lease_left);
  found->holds = std::max(found->holds, holder.holds);
  found->fence = std::max(found->fence, holder.fence);
}

void merge_into(std::vector<Waiter>& all, const Waiter& waiter) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Waiter& other) { return is_same(other, waiter); });
  if (found == all.end()) {
    all.push_back(waiter);
  } else {
    found->waiting = std::max(found->waiting, waiter.waiting);
  }
}

void finish(KeyState& state, std::size_t servers, std::size_t silent) {
  const auto majority = static_cast<int>(servers / 2 + 1);
  std::erase_if(state.holders, [&](const Holder& holder) {
    return holder.held_on + static_cast<int>(silent) < majority;
  });
  std::stable_sort(state.waiters.begin(), state.waiters.end(),
                   [](const Waiter& a, const Waiter& b) { return a.waiting > b.waiting; });
  for (std::size_t i = 0; i < state.waiters.size(); ++i) state.waiters[i].position = i + 1;
  for (Holder& holder : state.holders) holder.servers = static_cast<int>(servers);
}

}  // namespace

std::vector<Holder> merged_holders(const std::vector<std::vector<Holder>>& said) {
  std::vector<Holder> all;
  for (const auto& holders : said) {
    for (const Holder& holder : holders) merge_into(all, holder);
  }
  return all;
}

std::vector<KeyState> merged_states(const Query& query,
                                    const std::vector<std::vector<KeyState>>& said,
                                    std::size_t servers) {
  std::map<LockKey, KeyState> by_key;
  for (const auto& states : said) {
    for (const KeyState& state : states) {
      KeyState& merged = by_key[state.key];
      for (const Holder& holder : state.holders) merge_into(merged.holders, holder);
      for (const Waiter& waiter : state.waiters) merge_into(merged.waiters, waiter);
    }
  }
  std::vector<KeyState> all;
  const auto take = [&](KeyState state) {
    finish(state, servers, servers - said.size());
    return state;
  };
  for (const LockKey& key : query.keys) {
    auto state = by_key.extract(key);
    all.push_back(take(state ? std::move(state.mapped()) : KeyState{}));
    all.back().key = key;
  }
  for (auto& [key, merged] : by_key) {
    KeyState state = take(std::move(merged));
    state.key = key;
    if (!state.holders.empty() || !state.waiters.empty()) all.push_back(std::move(state));
  }
  return all;
}

void throw_no_majority(const std::vector<std::optional<Error>>& troubles) {
  std::optional<Trouble> common;
  std::string text;
  for (const auto& trouble : troubles) {
    if (!trouble) continue;
    if (!common) common = trouble->trouble();
    if (*common != trouble->trouble()) common = Trouble::unavailable;
    text += (text.empty() ? ": " : "; ") + std::string(trouble->what());
  }
  throw Error(common.value_or(Trouble::unavailable),
              "no majority of " + std::to_string(troubles.size()) + " servers" + text);
}

}  // namespace dlock
