#include "redis/cluster_store.hpp"

namespace dlock {

LatchState ClusterStore::open_latch(const LockKey& key, const LatchTerms& terms,
                                    const Patience& patience) {
  LatchState state;
  at_slot(slot(key), patience, [&](RedisStore& node, const Patience& share) {
    state = node.open_latch(key, terms, share);
  });
  return state;
}

std::optional<LatchState> ClusterStore::arrive(const LockKey& key, const ArrivalId& id,
                                               const Patience& patience) {
  std::optional<LatchState> state;
  at_slot(slot(key), patience,
          [&](RedisStore& node, const Patience& share) { state = node.arrive(key, id, share); });
  return state;
}

std::optional<LatchState> ClusterStore::look_at_latch(const LockKey& key, bool listen,
                                                      const Patience& patience) {
  std::optional<LatchState> state;
  at_slot(slot(key), patience, [&](RedisStore& node, const Patience& share) {
    state = node.look_at_latch(key, listen, share);
    if (listen) queued_at_ = &node;
  });
  return state;
}

Wake::Why ClusterStore::sleep_at_latch(const LockKey& key, Deadline until, int interrupt_fd) {
  return queued_at_->sleep_at_latch(key, until, interrupt_fd);
}

}  // namespace dlock
