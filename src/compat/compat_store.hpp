#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compat/lock_driver.hpp"
#include "lock/store.hpp"
#include "redis/redis_client.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

/// Wakes a waiter when its key changes: a second connection listens for what the library publishes,
/// and for what the server tells about keys that the first one has read
/// (https://redis.io/docs/latest/develop/reference/client-side-caching/), which includes a release
/// by anybody and an expiry. A server that can do neither is polled.
class ReleaseNews {
 public:
  /// Listens for `key`, as read by the client of `link` from now on, and on `channels`, as the
  /// driver of the layout has them; what came before is forgotten. Returns whether it has just
  /// begun to, so that the key has to be read once more. Trouble is no error: then the waiter
  /// polls.
  bool listen(const LinkId& link, const std::string& key, const std::vector<std::string>& channels,
              const CallOptions& call_options);
  /// Whether a change of the key wakes.
  bool works() const { return tracks_ || hears_; }
  /// Sleeps until `until`, or until there is news.
  Wake::Reason await(Deadline until, int cancel_fd);
  /// Ends the second connection: nobody waits any more.
  void close();

 private:
  bool is_set_up_for(const LinkId& link, const std::vector<std::string>& channels) const;
  void open(RedisClient& client, const CallOptions& call_options);
  void track(RedisClient& client, std::int64_t listener, const CallOptions& call_options);
  bool concerns_us(const Published& message) const;
  Wake::Reason paced(Deadline until, int cancel_fd);

  std::optional<RedisConnection> listener_;
  std::string key_;
  std::vector<std::string> channels_;
  LinkId link_;          ///< on which the key is read
  bool tracks_ = false;  ///< the server tells of changes
  bool hears_ = false;   ///< the library does
  Deadline again_at_{};  ///< a listener that broke is not opened before
  Deadline pace_{};      ///< the end of the time that the wake-ups so far may take
};

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
