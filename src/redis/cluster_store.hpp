#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "lock/seals.hpp"
#include "lock/store.hpp"
#include "redis/announced.hpp"
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
class ClusterStore final : public Store, public Seals, public Latches {
 public:
  /// `seeds`: some nodes, whose login and TLS are those of all; `terms` but for `cluster`.
  ClusterStore(std::vector<Endpoint> seeds, RedisTerms terms);

  Answer acquire(const Claim& claim, const Ask& ask, const Patience& patience) override;
  Wake sleep(const Claim& claim, Deadline until, int interrupt_fd) override;
  std::optional<Grant> renew(const LockKey& key, const Token& token,
                             std::optional<milliseconds> ttl, const Patience& patience) override;
  Released release(const LockKey& key, const Token& token, ReleaseMode mode,
                   const Patience& patience) override;
  std::vector<Holder> force_release(const LockKey& key, std::optional<Fence> fence,
                                    const Patience& patience) override;
  std::vector<KeyState> inspect(const Query& query, const Patience& patience) override;
  bool needs_renewal(const Claim&) const override { return true; }
  std::string name() const override { return name_; }
  Fence seal(const LockKey& resource, Fence fence, const Patience& patience) override;

  LatchState open_latch(const LockKey& key, const LatchTerms& terms,
                        const Patience& patience) override;
  std::optional<LatchState> arrive(const LockKey& key, const ArrivalId& id,
                                   const Patience& patience) override;
  std::optional<LatchState> look_at_latch(const LockKey& key, bool listen,
                                          const Patience& patience) override;
  Wake::Why sleep_at_latch(const LockKey& key, Deadline until, int interrupt_fd) override;

 private:
  using Visit = std::function<void(RedisStore& node, const Patience& patience)>;
  class Trip;

  int slot(const LockKey& key) const;
  RedisStore& node_at(const Announced& place);
  /// Runs `visit` at the node of `slot`, and again for as long as there is reason to. Returns
  /// whether one that broke off may have done it before the last.
  bool at_slot(int slot, const Patience& patience, const Visit& visit);
  /// The answer to CLUSTER SLOTS; throws Error{unavailable} where it comes from no Cluster.
  void take_map(RedisStore& node, const Reply& reply, const Announced& place);
  /// Asks nodes where the slots are, others than `avoided`; throws Error if none can say.
  void refresh(const std::optional<Announced>& avoided, const Patience& patience);
  [[noreturn]] void give_up(std::size_t nodes, const Error& last) const;
  bool was_reached() const;
  std::vector<Reply> read(const std::vector<LockKey>& keys, const std::vector<Request>& requests,
                          const Patience& patience);
  /// Requests about keys of one slot.
  std::vector<Reply> read_at(int slot, const std::vector<Request>& requests,
                             const Patience& patience);
  std::vector<LockKey> find(const std::vector<std::string>& globs, const Patience& patience);
  std::vector<LockKey> find_once(const std::vector<std::string>& globs, const Patience& patience);

  std::vector<Announced> seeds_;
  Endpoint login_;  ///< of every node, without its place
  RedisTerms terms_;
  std::string name_;
  std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();
  std::map<Announced, std::unique_ptr<RedisStore>> nodes_;  ///< none ever goes
  SlotMap map_;
  std::size_t seed_ = 0;             ///< the one to ask for slots nobody is known to have
  std::size_t refreshes_ = 0;        ///< each begins with another node
  RedisStore* queued_at_ = nullptr;  ///< where the last who waits was answered
};

}  // namespace dlock
