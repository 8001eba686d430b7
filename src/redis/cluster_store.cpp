#include "redis/cluster_store.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "redis/backoff.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

RedisTerms for_nodes(RedisTerms terms) {
  terms.may_move = terms.cluster = true;
  return terms;
}

}  // namespace

ClusterStore::ClusterStore(std::vector<Endpoint> seeds, RedisTerms terms)
    : terms_(for_nodes(std::move(terms))), router_(std::move(seeds), [this](const Endpoint& node) {
        return std::make_unique<RedisStore>(std::make_unique<FixedEndpoint>(node), terms_,
                                            pending_);
      }) {}

bool ClusterStore::at_slot(int slot, const CallOptions& call_options, const Visit& visit) {
  return router_.at_slot(slot, call_options, [&](RedisClient& node, const CallOptions& share) {
    visit(static_cast<RedisStore&>(node), share);
  });
}

Answer ClusterStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  Answer answer;
  at_slot(slot(claim.key), call_options, [&](RedisStore& node, const CallOptions& share) {
    answer = node.acquire(claim, ask, share);
    if (ask.wait) queued_at_ = &node;
  });
  return answer;
}

Wake ClusterStore::sleep(const Claim& claim, Deadline until, int cancel_fd) {
  return queued_at_->sleep(claim, until, cancel_fd);
}

Renewed ClusterStore::renew(const Claim& claim, const RenewalTerms& terms,
                            const CallOptions& call_options) {
  Renewed renewed;
  at_slot(slot(claim.key), call_options, [&](RedisStore& node, const CallOptions& share) {
    renewed = node.renew(claim, terms, share);
  });
  return renewed;
}

ReleaseResult ClusterStore::release(const Claim& claim, const ReleaseOptions& how,
                                    const CallOptions& call_options) {
  if (pending_->unanswered.contains({claim.key, claim.token}) && !router_.was_reached()) return {};
  ReleaseResult result;
  const bool may_be_done =
      at_slot(slot(claim.key), call_options, [&](RedisStore& node, const CallOptions& share) {
        result = node.release(claim, how, share);
      });
  if (result.outcome == Released::not_held && may_be_done) result.outcome = Released::yes;
  return result;
}

std::vector<Holder> ClusterStore::evict(const LockKey& key, std::optional<Fence> fence,
                                        const Who& by, const CallOptions& call_options) {
  std::vector<Holder> out;
  at_slot(slot(key), call_options, [&](RedisStore& node, const CallOptions& share) {
    out = node.evict(key, fence, by, share);
  });
  return out;
}

Fence ClusterStore::record_max(const LockKey& resource, Fence fence,
                               const CallOptions& call_options) {
  Fence largest;
  at_slot(slot(resource), call_options, [&](RedisStore& node, const CallOptions& share) {
    largest = node.record_max(resource, fence, share);
  });
  return largest;
}

int ClusterStore::slot(const LockKey& key) const {
  return slot_of(KeyNames(terms_.prefix, key).holds);
}

}  // namespace dlock
