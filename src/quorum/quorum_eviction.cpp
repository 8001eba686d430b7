#include <optional>
#include <utility>

#include "quorum/merge.hpp"
#include "quorum/quorum_store.hpp"

// An eviction at several servers: one look at the holders, and then one request, which a server
// that is farther than the others gets although its answer to the look has not come.

namespace dlock {

std::vector<Holder> QuorumStore::evict(const LockKey& key, std::optional<Fence> fence,
                                       const Who& by, const CallOptions& call_options) {
  while (true) {
    std::vector<Holder> seen;
    // Until its first renewals a hold may have another fence on each server: all of them count.
    for (auto& holders : holders_said(HolderQuery{key}, call_options)) {
      std::move(holders.begin(), holders.end(), std::back_inserter(seen));
    }
    if (fence) std::erase_if(seen, [&](const Holder& each) { return each.fence != *fence; });
    if (seen.empty()) return {};
    auto evicted = merged_holders(holders_said(Eviction{key, seen, by}, call_options));
    if (!evicted.empty()) return evicted;
    // They have released it since, and the next may have it already.
  }
}

/// The holders that each server named. Throws Error{unavailable} if no majority answered.
std::vector<std::vector<Holder>> QuorumStore::holders_said(const NodeRequest& request,
                                                           const CallOptions& call_options) {
  const auto answers = nodes_->poll(request, call_options, straggler_wait,
                                    [](const Nodes::Answers&) { return false; });
  if (std::holds_alternative<Eviction>(request)) await_far_servers(call_options.deadline);
  std::vector<std::vector<Holder>> said;
  for (const auto& heard : answers) {
    const auto* holders = heard ? std::get_if<std::vector<Holder>>(&heard->response) : nullptr;
    if (holders != nullptr) said.push_back(*holders);
  }
  if (said.size() < nodes_->majority()) nodes_->throw_no_majority_of(answers);
  return said;
}

}  // namespace dlock
