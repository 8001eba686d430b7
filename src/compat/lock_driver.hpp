#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compat/foreign_lock.hpp"
#include "compat/layout.hpp"
#include "lock/grant.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// The name of a hold in its key, and the part by which a client with only the token finds it
/// again.
struct HoldMark {
  std::string written;  ///< the value, the field or the member
  std::string proof;    ///< renewals and releases compare this: all of `written`, or its end
};

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
  HoldMark mark_of(const Token& token) const;

  /// One run of the layout's script (src/compat/scripts). The operations: `take`; `renew`;
  /// `release`, which notifies the library's waiters; `keep`, a renewal in place of a release,
  /// which notifies those that sleep for the length of the lease; and `evict`, whose mark is a
  /// victim's. A repeated `evict` therefore evicts no later holder.
  ScriptRun run(const char* operation, const std::string& key, const HoldMark& mark,
                milliseconds ttl = {}) const;

  /// The holder that a look at a key shows; nothing if the key is free. Throws Error{wrong_data},
  /// which names the lock as `where`, if it is no lock of this layout.
  std::optional<Holder> holder_in(const std::string& where, const KeyLook& look) const;
  /// Throws Error{wrong_data}: the lock at `where` is of another kind.
  [[noreturn]] void refuse(const std::string& where, const std::string& kind) const;
  /// The proof in the mark of a victim, from the contents of its key.
  std::string proof_of_victim(const Reply& contents) const;

 private:
  std::vector<std::string> keys(const std::string& key) const;
  /// The channels on which the library announces a release; empty if it has none.
  std::vector<std::string> channels(const std::string& key) const;

  const Layout layout_;
  const bool cluster_;
};

}  // namespace dlock
