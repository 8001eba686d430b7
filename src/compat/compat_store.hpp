#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compat/lock_driver.hpp"
#include "compat/release_news.hpp"
#include "lock/store.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// Locks in the layout of another library, so that its users and dlock exclude each other.
/// Exclusive ones only, without a queue, an owner and, but for one layout, a fencing token: what
/// the layout has no room for is refused before. Owned and used by one thread at a time.
class CompatStore final : public Store {
 public:
  CompatStore(const Layout& layout, std::unique_ptr<RedisTransport> servers)
      : driver_(driver_of(layout, servers->is_cluster())), servers_(std::move(servers)) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalTerms& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  std::vector<int> connections() const override { return servers_->connections(); }
  std::string name() const override { return servers_->name(); }

 private:
  /// What this store knows of a hold that it granted.
  struct Granted {
    Deadline at{};
    milliseconds ttl{0};
    milliseconds floor{0};
  };
  using Key = std::pair<LockKey, Token>;

  /// A try at the lock, and the link on which the key was read.
  struct Try {
    Answer answer;
    LinkId link;
  };
  /// By one plain command, which costs the server least; nothing where it does not get the lock.
  std::optional<Grant> take_if_free(const Claim& claim, const CallOptions& call_options);
  Try take(const Claim& claim, const CallOptions& call_options);
  /// The lease that a renewal is to bring; throws Error{usage} where nobody has told it.
  milliseconds ttl_of(const Claim& claim, const RenewalTerms& terms) const;
  /// A run of a script about `key`, at the server that has it. An error reply is thrown.
  ScriptReply run(const LockKey& key, const ScriptRun& script, const CallOptions& call_options);
  /// Throws what an error reply about `key` means, that of another kind of data with what it seems
  /// to be.
  void check(const LockKey& key, const std::string& server, const Reply& reply,
             const CallOptions& call_options);
  /// Throws Error{wrong_data} for the answer {-1, what it is}.
  void refuse_other_kinds(const LockKey& key, const Reply& answer) const;
  Refusal refusal_from(const std::string& key, const Reply& answer) const;
  std::optional<Holder> holder_of(const LockKey& key, const CallOptions& call_options);

  std::unique_ptr<LockDriver> driver_;
  std::unique_ptr<RedisTransport> servers_;
  ReleaseNews news_;
  std::map<Key, HoldMark> names_;
  std::map<Key, Granted> granted_;
};

}  // namespace dlock
