#include <algorithm>
#include <optional>
#include <vector>

#include "base/wait.hpp"
#include "quorum/merge.hpp"
#include "quorum/quorum_store.hpp"

// The operations that send one request to all servers at once: no votes are counted before.

namespace dlock {
namespace {

/// The nodes' replies about a release, counted.
struct ReleaseCount {
  std::size_t released = 0, left_queue = 0, not_held = 0;
  std::optional<Who> evicted_by;

  explicit ReleaseCount(const Nodes::Answers& answers) {
    for (const auto& answer : answers) {
      const auto* result = answer ? std::get_if<ReleaseResult>(&answer->response) : nullptr;
      if (result == nullptr) continue;
      if (result->outcome == Released::yes) ++released;
      if (result->outcome == Released::left_queue) ++left_queue;
      if (result->outcome == Released::not_held) ++not_held;
      if (result->evicted_by) evicted_by = result->evicted_by;
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
      if (!answers[i] && !is_silent) return false;
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
  if (each_counts) await_far_servers(call_options.deadline);
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

void QuorumStore::await_far_servers(Deadline deadline) {
  nodes_.await_stragglers(at_most(time_for_a_far_server, {deadline, -1}));
}

/// One request lists the holders, a second one evicts them. A far server gets the second request
/// although it has not answered the first.
std::vector<Holder> QuorumStore::evict(const LockKey& key, std::optional<Fence> fence,
                                       const Who& by, const CallOptions& call_options) {
  Backoff pauses(milliseconds(1), milliseconds(64));
  while (true) {
    auto listed = holder_lists(HolderQuery{key}, call_options);
    std::vector<Holder> seen;
    // Until its first renewals a hold may have a different fence on each server: all of them count.
    for (auto& holders : listed) {
      if (!holders) continue;
      if (fence) std::erase_if(*holders, [&](const Holder& each) { return each.fence != *fence; });
      seen.insert(seen.end(), holders->begin(), holders->end());
    }
    if (seen.empty()) return {};
    const auto evicted = holder_lists(Eviction{key, seen, by}, call_options);
    std::vector<std::vector<Holder>> answered;
    bool may_have_gone_on = false;
    for (std::size_t i = 0; i < evicted.size(); ++i) {
      if (!evicted[i]) continue;
      answered.push_back(*evicted[i]);
      // A majority has answered, so a holder that only the others list holds nothing. It may stay
      // listed, as on a server that refuses writes.
      may_have_gone_on = may_have_gone_on || (listed[i] && !listed[i]->empty());
    }
    std::vector<Holder> merged;
    for (const auto& views : holders_by_owner(answered)) merged.push_back(views.front());
    if (!merged.empty() || !may_have_gone_on) return merged;
    // The holders seen have released since, and others may hold the key already.
    pause(pauses.next(), call_options);
  }
}

/// The holders that each server named; nothing for a server that did not answer so. Throws
/// Error{unavailable} if no majority answered.
QuorumStore::HolderLists QuorumStore::holder_lists(const NodeRequest& request,
                                                   const CallOptions& call_options) {
  const auto answers = nodes_.poll(request, call_options);
  if (std::holds_alternative<Eviction>(request)) await_far_servers(call_options.deadline);
  HolderLists lists(answers.size());
  std::size_t answered = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto& answer = answers[i];
    const auto* holders = answer ? std::get_if<std::vector<Holder>>(&answer->response) : nullptr;
    if (holders == nullptr) continue;
    lists[i] = *holders;
    ++answered;
  }
  if (answered < nodes_.majority()) nodes_.throw_no_majority_of(answers);
  return lists;
}

std::vector<KeyState> QuorumStore::inspect(const Query& query, const CallOptions& call_options) {
  const auto answers = nodes_.poll(Inspection{query}, call_options);
  std::vector<std::vector<KeyState>> lists;
  for (const auto& answer : answers) {
    const auto* states = answer ? std::get_if<std::vector<KeyState>>(&answer->response) : nullptr;
    if (states != nullptr) lists.push_back(*states);
    const auto* error = answer ? std::get_if<Error>(&answer->response) : nullptr;
    if (error != nullptr && error->kind() == ErrorKind::usage) throw Error(*error);
  }
  if (lists.size() < nodes_.majority()) nodes_.throw_no_majority_of(answers);
  return merged_states(query, lists, nodes_.size());
}

Fence QuorumStore::record_max(const LockKey& resource, Fence fence,
                              const CallOptions& call_options) {
  Fence largest = fence;
  const auto enough = [&](const Nodes::Answers& answers) {
    std::size_t recorded = 0;
    for (const auto& answer : answers) {
      const auto* in_register = answer ? std::get_if<Fence>(&answer->response) : nullptr;
      if (in_register == nullptr) continue;
      if (*in_register == fence) ++recorded;
      largest = std::max(largest, *in_register);
    }
    return largest > fence || recorded >= nodes_.majority();
  };
  const auto answers = nodes_.poll(FenceRecord{resource, fence}, call_options, enough);
  if (enough(answers)) return largest;
  nodes_.throw_no_majority_of(answers);
}

}  // namespace dlock
