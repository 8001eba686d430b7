#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "lock/fence_register.hpp"
#include "lock/store.hpp"
#include "redis/node_address.hpp"
#include "redis/redirection.hpp"
#include "redis/redis_store.hpp"
#include "redis/slot_map.hpp"

namespace dlock {

/// Locks and latches on a Redis Cluster: one RedisStore for each node that was needed, and every
/// request at the node that has its key's slot. Redirections are followed, and a node that does not
/// answer is looked for anew, for as long as the caller's patience lasts. Owned and used by one
/// thread at a time.
///
/// Where a slot is, is asked for in the same write as the first request to a node: so a node that
/// has the slot costs no round trip more than a server alone, and another one a redirection.
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
  std::string name() const override { return name_; }
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
  class RoutedCall;

  int slot(const LockKey& key) const;
  RedisStore& node_at(const NodeAddress& place);
  /// Runs `visit` at the node of `slot`, and again for as long as there is reason to. Returns
  /// whether one that broke off may have done it before the last.
  bool at_slot(int slot, const CallOptions& call_options, const Visit& visit);
  /// The answer to CLUSTER SLOTS; throws Error{unavailable} where it comes from no Cluster.
  void take_map(RedisStore& node, const Reply& reply, const NodeAddress& place);
  /// Asks nodes where the slots are, others than `avoided`; throws Error if none can say.
  void refresh(const std::optional<NodeAddress>& avoided, const CallOptions& call_options);
  [[noreturn]] void give_up(std::size_t nodes, const Error& last) const;
  bool was_reached() const;
  std::vector<Reply> read(const std::vector<LockKey>& keys, const std::vector<Request>& requests,
                          const CallOptions& call_options);
  /// Requests about keys of one slot.
  std::vector<Reply> read_at(int slot, const std::vector<Request>& requests,
                             const CallOptions& call_options);
  std::vector<LockKey> find(const std::vector<std::string>& globs, const CallOptions& call_options);
  std::vector<LockKey> find_once(const std::vector<std::string>& globs,
                                 const CallOptions& call_options);

  std::vector<NodeAddress> seeds_;
  Endpoint login_;  ///< of every node, without its place
  RedisTerms terms_;
  std::string name_;
  std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();
  std::map<NodeAddress, std::unique_ptr<RedisStore>> nodes_;  ///< none ever goes
  SlotMap map_;
  std::size_t seed_ = 0;             ///< the one to ask for slots nobody is known to have
  std::size_t refreshes_ = 0;        ///< each begins with another node
  RedisStore* queued_at_ = nullptr;  ///< where the last who waits was answered
};

}  // namespace dlock
