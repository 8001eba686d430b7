#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

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

/// How one family of libraries stores a lock: the requests that take, renew and release it, and the
/// meaning of their replies. Each hold has a name of its own, so a take may be repeated. A driver
/// has no state besides its layout; CompatStore uses it.
class LockDriver {
 public:
  /// `cluster`: the servers form a Redis Cluster.
  LockDriver(Layout layout, bool cluster) : layout_(std::move(layout)), cluster_(cluster) {}
  virtual ~LockDriver() = default;
  LockDriver(const LockDriver&) = delete;
  LockDriver& operator=(const LockDriver&) = delete;

  const Layout& layout() const { return layout_; }
  std::string key_of(const LockKey& key) const { return layout_.key_of(key); }
  /// Throws Error{usage} if this layout cannot store a key of this name here.
  virtual void check_name(const LockKey&) const {}
  virtual HoldMark name_of(const Token& token) const = 0;

  /// A take by one plain command: it succeeded unless the reply is nil or an error. Returns nothing
  /// if only the script can take the lock.
  virtual std::optional<Request> quick_take(const std::string&, const HoldMark&,
                                            milliseconds) const {
    return std::nullopt;
  }
  /// Answers {1, fence}, {0, PTTL, contents} or {-1, description}.
  virtual ScriptRun take(const std::string& key, const HoldMark& name, milliseconds ttl) const = 0;
  /// Answers {1, fence} or {0}.
  virtual ScriptRun renew(const std::string& key, const HoldMark& name, milliseconds ttl) const = 0;
  /// Answers 1 or 0, and notifies the library's waiters.
  virtual ScriptRun release(const std::string& key, const HoldMark& name) const = 0;
  /// Keeps the key taken for `rest` in place of a release, by a renewal. If the library's waiters
  /// sleep for the length of the lease, it notifies them of the new one.
  virtual ScriptRun keep(const std::string& key, const HoldMark& name, milliseconds rest) const {
    return renew(key, name, rest);
  }
  /// Without a victim it changes nothing, and answers {1, PTTL, contents, the victim's name}, {0}
  /// or {-1, description}. With that name it evicts, notifies waiters and answers {1}, or {0} if
  /// another client holds the key by then. If it were one step, a request that is sent twice could
  /// evict the next holder.
  virtual ScriptRun evict(const std::string& key, const std::string& victim) const = 0;
  /// Plain requests that change nothing; the first one is PTTL.
  virtual std::vector<Request> look(const std::string& key) const = 0;
  /// The holder in the replies to look(), which must not be errors; nothing if the key is free.
  /// Throws Error{wrong_data} if the key is no lock of this layout.
  virtual std::optional<Holder> seen_in(const std::string& key,
                                        const std::vector<Reply>& replies) const = 0;
  /// The number of parts in the answer {0, PTTL, contents, ..} to a take.
  virtual std::size_t parts_of_a_refusal() const { return 3; }
  /// The holder in an answer {.., PTTL, contents, ..}.
  virtual Holder holder_in(const std::string& key, const Reply& answer) const = 0;
  /// The channels on which the library announces a release; empty if it has none. The first belongs
  /// to this key; messages on the others carry the name of the key.
  virtual std::vector<std::string> channels(const std::string&) const { return {}; }

 protected:
  bool cluster() const { return cluster_; }

 private:
  const Layout layout_;
  const bool cluster_;
};

std::unique_ptr<LockDriver> string_driver(Layout layout, bool cluster);
std::unique_ptr<LockDriver> redisson_driver(Layout layout, bool cluster);
std::unique_ptr<LockDriver> symfony_driver(Layout layout, bool cluster);
/// Makes the driver for the layout's kind.
std::unique_ptr<LockDriver> driver_of(Layout layout, bool cluster);

/// The 128 random bits of a token as 22 characters of base64url, and as a UUID. A text that is no
/// token of `acquire` gives a value that names no hold.
std::string base64url_of(const Token& token);
std::string uuid_of(const Token& token);

/// A holder as another library shows it: the library and the time left of the lease, from PTTL.
Holder foreign_holder(std::string library, const Reply& pttl);

}  // namespace dlock
