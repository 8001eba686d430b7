#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compat/foreign_lock.hpp"
#include "compat/layout.hpp"
#include "lock/grant.hpp"
#include "lock/member.hpp"
#include "lock/store.hpp"
#include "redis/redis_client.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

/// How the libraries of one layout store a lock: the requests that take, renew and release it, and
/// the meaning of their replies. Each hold has a name of its own, so a take may be repeated. A
/// driver has no state besides its layout; CompatStore uses it.
class LockDriver {
 public:
  /// `cluster`: the servers form a Redis Cluster.
  LockDriver(Layout layout, bool cluster) : layout_(std::move(layout)), cluster_(cluster) {}

  const Layout& layout() const { return layout_; }
  std::string key_of(const LockKey& key) const { return layout_.key_of(key); }
  /// Throws Error{usage} if this layout cannot store a key of this name here.
  void check_name(const LockKey& key) const;

  /// One run of the layout's script (src/compat/scripts). The operations: `take`; `renew`;
  /// `release`, which notifies the library's waiters; `keep`, a renewal in place of a release,
  /// which notifies those that sleep for the length of the lease; and `evict`, whose mark is a
  /// victim's. A repeated `evict` therefore evicts no later holder.
  ScriptRun run(const char* operation, const std::string& key, const HoldMark& mark,
                milliseconds ttl = {}) const;

  /// The holder that a look at a key shows; nothing if the key is free. Throws Error{wrong_data},
  /// which names the lock as `where`, if the key holds another kind of value.
  std::optional<Holder> holder_in(const std::string& where, const KeyLook& look) const;
  /// Throws Error{wrong_data}: the lock at `where` is of another kind.
  [[noreturn]] void refuse(const std::string& where, const std::string& kind) const;
  /// The proof in the mark of a victim, from the contents of its key.
  std::string proof_of_victim(const Reply& contents) const;

 private:
  const Layout layout_;
  const bool cluster_;
};

/// Wakes a waiter when its key changes. A second connection receives the server's invalidations of
/// keys that the first connection has read
/// (https://redis.io/docs/latest/develop/reference/client-side-caching/), which cover every release
/// and expiry. If the server does not support that, the waiter polls.
class ReleaseListener {
 public:
  /// Listens for changes of `key` that come after the next read on `link`. Returns true if it has
  /// just begun, because then the caller must read the key once more. A failure is no error: the
  /// waiter polls.
  bool listen(const LinkId& link, const std::string& key, const CallOptions& call_options);
  /// Whether a change of the key wakes the waiter.
  bool works() const { return connection_ && connection_->is_open(); }
  /// Sleeps until `until`, or until the key may have changed.
  Wake::Reason await(Deadline until, int cancel_fd);
  /// Closes the second connection when the wait is over.
  void close();

 private:
  void open(RedisClient& client, const CallOptions& call_options);
  Wake::Reason paced(Deadline until, int cancel_fd);

  std::optional<RedisConnection> connection_;
  std::string key_;
  LinkId link_;          ///< the connection that reads the key
  Deadline again_at_{};  ///< listen() tries no new connection before this
  Deadline pace_{};      ///< when the wake-ups so far would end if each took half a second
};

/// Locks in the layout of another library, so that its clients and dlock exclude each other. They
/// are exclusive, without a queue, without an owner and, except in one layout, without a fencing
/// token. src/config refuses settings that the layout cannot store. One thread at a time uses it.
class CompatStore final : public Member {
 public:
  CompatStore(const Layout& layout, std::unique_ptr<RedisTransport> servers)
      : driver_(layout, servers->is_cluster()), servers_(std::move(servers)) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override;
  bool waiter_asks_again() const override { return true; }
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override;
  Renewed renew(const Claim& claim, const RenewalOptions& terms,
                const CallOptions& call_options) override;
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override;
  std::vector<Holder> evict(const LockKey& key, const Eviction& how,
                            const CallOptions& call_options) override;
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override;
  std::vector<int> connections() const override { return servers_->connections(); }
  std::string name() const override { return servers_->name(); }

  // One server of a majority: the store proposes and raises no fence, and a server that lacks the
  // hold does not get it back, because the libraries do not do that either.
  std::optional<Grant> rejoin(const Claim&, Fence, const CallOptions&) override { return {}; }
  Standing standing() const override { return {}; }
  Fence record_max(const LockKey&, Fence fence, const CallOptions&) override { return fence; }

 private:
  /// A hold that this store has asked for.
  struct Hold {
    HoldMark mark;
    bool is_granted = false;
    Deadline granted_at{};
    milliseconds ttl{0};
    milliseconds floor{0};
  };

  /// The answer to one request for the lock, and the link on which the answer came.
  struct Try {
    Answer answer;
    LinkId link;
  };
  Try take(const Claim& claim, const HoldMark& mark, const CallOptions& call_options);
  Hold& hold_of(const Claim& claim);
  /// The lease that a renewal sets; throws Error{usage} if it is not known.
  static milliseconds ttl_of(const Hold& hold, const Claim& claim, const RenewalOptions& terms);
  /// Runs the layout's script at the server of the key; throws on an error reply.
  ScriptReply run(const LockKey& key, const ScriptRun& script, const CallOptions& call_options);
  /// Throws the Error for an error reply about `key`. For a key of another type it says what the
  /// key seems to be.
  void check(const LockKey& key, const std::string& server, const Reply& reply,
             const CallOptions& call_options);
  KeyLook look_at(const LockKey& key, const CallOptions& call_options);
  std::optional<Holder> holder_in(const LockKey& key, const KeyLook& look) const;

  LockDriver driver_;
  std::unique_ptr<RedisTransport> servers_;
  ReleaseListener listener_;
  std::map<std::pair<LockKey, Token>, Hold> holds_;
};

}  // namespace dlock
