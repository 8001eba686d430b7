#pragma once

#include <set>
#include <string>
#include <vector>

#include "lock/store.hpp"
#include "redis/connection.hpp"
#include "redis/protocol_text.hpp"

namespace dlock {

/// Locks on one Redis or Valkey server: every request is one run of lock.lua. Owned and used by one
/// thread at a time.
class RedisStore final : public Store {
 public:
  RedisStore(Endpoint endpoint, std::string prefix);

  Answer acquire(const Claim& claim, const Ask& ask, const Patience& patience) override;
  Wake sleep(const Claim& claim, Deadline until, int interrupt_fd) override;
  std::optional<Lease> renew(const LockKey& key, const Token& token,
                             std::optional<milliseconds> ttl, const Patience& patience) override;
  Released release(const LockKey& key, const Token& token, ReleaseMode mode,
                   const Patience& patience) override;
  std::vector<Holder> force_release(const LockKey& key, std::optional<Fence> fence,
                                    const Patience& patience) override;
  std::vector<KeyState> inspect(const Query& query, const Patience& patience) override;
  bool needs_renewal(const Claim& claim) const override;
  std::string name() const override { return connection_.name(); }

 private:
  /// Runs the script for `key`, by its hash and, where the server does not know it, by its text;
  /// throws what an error reply means. With `listen` the reply comes together with a subscription
  /// to this store's channel for the key.
  Reply run(const LockKey& key, const std::vector<std::string>& arguments, bool listen,
            const Patience& patience);
  Reply run_script(const KeyNames& names, const std::vector<std::string>& arguments, bool listen,
                   bool by_text, const Patience& patience);
  /// Goes on letting the queue in where one call had done its share. A courtesy to the others: that
  /// it fails does not change our own answer.
  void tidy(const LockKey& key, const Reply& more, const Patience& patience);
  Answer ask_once(const Claim& claim, const Ask& ask, const Patience& patience, bool& more);
  /// A connection that listens to a channel may not send plain commands.
  void stop_listening(const Patience& patience);
  std::vector<LockKey> matching_keys(const std::vector<std::string>& globs,
                                     const Patience& patience);
  KeyState state_of(const LockKey& key, const std::vector<Reply>& replies) const;
  /// What becomes of a key that holds something else: named by the user it is an error, met by a
  /// glob it is none of ours.
  enum class NotALock { reported, skipped };
  std::vector<KeyState> states_of(const std::vector<LockKey>& keys, NotALock not_a_lock,
                                  const Patience& patience);

  std::string prefix_;
  Connection connection_;
  std::string channel_;               ///< the last part of every channel this store listens to
  std::string subscribed_;            ///< the whole name of the one it listens to now, if any
  std::set<std::string> unanswered_;  ///< tokens of acquires whose answer never came
};

}  // namespace dlock
