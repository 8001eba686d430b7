#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lock/store.hpp"

namespace dlock {

/// A lock in the layout of libraries that let a majority of independent servers decide, as they do
/// it (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/): all servers are asked
/// at once, a refused try gives its votes back at once, and a waiter tries again after a random
/// pause. Unlike dlock's own majority it has no fencing token, no queue, and nothing keeps a server
/// that has lost its memory from voting, for the libraries would not keep to it.
class RedlockStore final : public Store {
 public:
  /// `nodes`: a store for each server, in its layout.
  explicit RedlockStore(std::vector<StorePtr> nodes) : nodes_(std::move(nodes)) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalOptions& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  std::vector<int> connections() const override;
  std::vector<Error> take_troubles() override;
  std::string name() const override;

 private:
  std::size_t majority() const { return nodes_.size() / 2 + 1; }
  /// The time for one try: another server may answer if one is silent.
  static CallOptions share_of(const CallOptions& call_options, milliseconds ttl);

  /// Releases the votes of a refused try.
  void release_votes(const Claim& claim);
  /// The servers that may still receive a release of that token. It would end a newer vote, so
  /// their votes do not count. If they would decide, the caller takes another token.
  std::set<std::size_t> unsure_of(const Claim& claim) const;

  std::vector<StorePtr> nodes_;
  std::map<std::pair<LockKey, Token>, std::set<std::size_t>> unsure_;
  bool is_reported_ = false;
};

}  // namespace dlock
