#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "lock/fence_register.hpp"
#include "lock/store.hpp"
#include "redis/cluster_router.hpp"
#include "redis/redis_store.hpp"

namespace dlock {

/// Locks and latches on a Redis Cluster: one RedisStore for each node that was needed, and every
/// request at the node that has its key's slot. Owned and used by one thread at a time.
class ClusterStore final : public Store, public FenceRegister, public Latches {
 public:
  /// `seeds`: some nodes, whose login and TLS are those of all; `terms` but for `cluster`.
  ClusterStore(std::vector<Endpoint> seeds, RedisTerms terms);

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalTerms& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  std::string name() const override { return router_.name(); }
  Fence record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) override;

  LatchState open_latch(const LockKey& key, const LatchTerms& terms,
                        const CallOptions& call_options) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const CallOptions& call_options) override;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const CallOptions& call_options) override;
  Wake::Reason sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) override;

 private:
  using Visit = std::function<void(RedisStore& node, const CallOptions& call_options)>;

  int slot(const LockKey& key) const;
  bool at_slot(int slot, const CallOptions& call_options, const Visit& visit);
  std::vector<Reply> read(const std::vector<LockKey>& keys, const std::vector<Request>& requests,
                          const CallOptions& call_options);
  std::vector<LockKey> find(const std::vector<std::string>& globs, const CallOptions& call_options);
  std::vector<LockKey> find_once(const std::vector<std::string>& globs,
                                 const CallOptions& call_options);

  const RedisTerms terms_;
  std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();
  ClusterRouter router_;
  RedisStore* queued_at_ = nullptr;  ///< where the last who waits was answered
};

}  // namespace dlock
