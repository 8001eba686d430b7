#include "redis/cluster_store.hpp"

namespace dlock {

LatchState ClusterStore::open_latch(const LockKey& key, const LatchTerms& terms,
                                    const CallOptions& call_options) {
  LatchState state;
  at_slot(slot(key), call_options, [&](RedisStore& node, const CallOptions& share) {
    state = node.open_latch(key, terms, share);
  });
  return state;
}

std::optional<LatchState> ClusterStore::arrive(const LockKey& key, const ArrivalId& id,
                                               const CallOptions& call_options) {
  std::optional<LatchState> state;
  at_slot(slot(key), call_options,
          [&](RedisStore& node, const CallOptions& share) { state = node.arrive(key, id, share); });
  return state;
}

std::optional<LatchState> ClusterStore::look_at_latch(const LockKey& key, bool listen,
                                                      const CallOptions& call_options) {
  std::optional<LatchState> state;
  at_slot(slot(key), call_options, [&](RedisStore& node, const CallOptions& share) {
    state = node.look_at_latch(key, listen, share);
    if (listen) queued_at_ = &node;
  });
  return state;
}

Wake::Reason ClusterStore::sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) {
  return queued_at_->sleep_at_latch(key, until, cancel_fd);
}

}  // namespace dlock
