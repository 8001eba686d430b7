#include <optional>
#include <vector>

#include "base/backoff.hpp"
#include "quorum/merge.hpp"
#include "quorum/quorum_store.hpp"

// An eviction at several servers: one request lists the holders, a second one evicts them. A far
// server gets the second request although it has not answered the first.

namespace dlock {
namespace {

using Said = std::vector<std::optional<std::vector<Holder>>>;

/// The lists of the servers that answered.
std::vector<std::vector<Holder>> heard_in(const Said& said) {
  std::vector<std::vector<Holder>> heard;
  for (const auto& holders : said) {
    if (holders) heard.push_back(*holders);
  }
  return heard;
}

/// Whether a server that lists a holder has answered the eviction of it. A majority has answered,
/// so a holder that only the others list holds nothing. It may stay listed, as on a server that
/// refuses writes.
bool may_have_gone_on(const Said& listed, const Said& evicted) {
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (listed[i] && !listed[i]->empty() && evicted[i]) return true;
  }
  return false;
}

}  // namespace

std::vector<Holder> QuorumStore::evict(const LockKey& key, std::optional<Fence> fence,
                                       const Who& by, const CallOptions& call_options) {
  Backoff pauses(milliseconds(1), milliseconds(64));
  while (true) {
    Said listed = holders_said(HolderQuery{key}, call_options);
    std::vector<Holder> seen;
    // Until its first renewals a hold may have a different fence on each server: all of them count.
    for (auto& holders : listed) {
      if (!holders) continue;
      if (fence) std::erase_if(*holders, [&](const Holder& each) { return each.fence != *fence; });
      seen.insert(seen.end(), holders->begin(), holders->end());
    }
    if (seen.empty()) return {};
    const Said said = holders_said(Eviction{key, seen, by}, call_options);
    auto evicted = merged_holders(heard_in(said));
    if (!evicted.empty() || !may_have_gone_on(listed, said)) return evicted;
    // The holders seen have released since, and others may hold the key already.
    pause(pauses.next(), call_options);
  }
}

/// The holders that each server named; nothing for a server that did not answer so. Throws
/// Error{unavailable} if no majority answered.
std::vector<std::optional<std::vector<Holder>>> QuorumStore::holders_said(
    const NodeRequest& request, const CallOptions& call_options) {
  const auto answers = nodes_->poll(request, call_options, straggler_wait,
                                    [](const Nodes::Answers&) { return false; });
  if (std::holds_alternative<Eviction>(request)) await_far_servers(call_options.deadline);
  std::vector<std::optional<std::vector<Holder>>> said(answers.size());
  std::size_t answered = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto& heard = answers[i];
    const auto* holders = heard ? std::get_if<std::vector<Holder>>(&heard->response) : nullptr;
    if (holders == nullptr) continue;
    said[i] = *holders;
    ++answered;
  }
  if (answered < nodes_->majority()) nodes_->throw_no_majority_of(answers);
  return said;
}

}  // namespace dlock
