#include <algorithm>
#include <optional>
#include <vector>

#include "quorum/quorum_store.hpp"
#include "quorum/vote_count.hpp"

// The operations that send one request to all servers at once: no votes are counted before.

namespace dlock {
namespace {

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
  if (each_counts) await_far_servers(time_for_a_far_server, call_options.deadline);
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

void QuorumStore::await_far_servers(milliseconds span, Deadline deadline) {
  nodes_.await_stragglers(at_most(span, {deadline, -1}));
}

/// Each server evicts the holders that it has: until the first renewals of a hold, its fence may
/// differ from server to server.
std::vector<Holder> QuorumStore::evict(const LockKey& key, std::optional<Fence> fence,
                                       const Who& by, const CallOptions& call_options) {
  const auto answers = nodes_.poll(Eviction{key, fence, by}, call_options);
  // A far server gets two requests for it.
  await_far_servers(2 * time_for_a_far_server, call_options.deadline);
  const auto lists = all_of<std::vector<Holder>>(answers);
  if (lists.size() < nodes_.majority()) nodes_.throw_no_majority_of(answers);
  std::vector<Holder> evicted;
  for (const auto& views : holders_by_owner(lists)) evicted.push_back(views.front());
  return evicted;
}

std::vector<KeyState> QuorumStore::inspect(const Query& query, const CallOptions& call_options) {
  const auto answers = nodes_.poll(Inspection{query}, call_options);
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
  const auto answers = nodes_.poll(FenceRecord{resource, fence}, call_options, enough);
  if (enough(answers)) return largest;
  nodes_.throw_no_majority_of(answers);
}

}  // namespace dlock
