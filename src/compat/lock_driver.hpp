#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compat/layout.hpp"
#include "lock/grant.hpp"
#include "redis/redis_client.hpp"
namespace dlock {

/// What names a hold in its key, and how it is found again by those who know its token alone.
struct HoldMark {
  std::string written;  ///< the value, the field or the member
  std::string proof;    ///< what renewals and releases compare: all of it, or its end
};

/// How one family of libraries stores a lock: which requests take, renew and release it, and what
/// their replies say. Every take may be repeated: each hold has a name of its own. A plain value of
/// its layout; CompatStore drives it.
class LockDriver {
 public:
  /// `cluster`: the servers are a Redis Cluster.
  LockDriver(Layout layout, bool cluster) : layout_(std::move(layout)), cluster_(cluster) {}
  virtual ~LockDriver() = default;
  LockDriver(const LockDriver&) = delete;
  LockDriver& operator=(const LockDriver&) = delete;

  const Layout& layout() const { return layout_; }
  std::string key_of(const LockKey& key) const { return layout_.key_of(key); }
  /// Throws Error{usage} for a name that has no room in this layout here.
  virtual void check_name(const LockKey&) const {}
  virtual HoldMark name_of(const Token& token) const = 0;

  /// A take in one plain command, answered by anything but nil and an error if it is ours; nothing
  /// where only the script does it.
  virtual std::optional<Request> quick_take(const std::string&, const HoldMark&,
                                            milliseconds) const {
    return std::nullopt;
  }
  /// Answers {1, fence}, or {0, PTTL, what is found}, or {-1, what it is}.
  virtual ScriptRun take(const std::string& key, const HoldMark& name, milliseconds ttl) const = 0;
  /// Answers {1, fence} or {0}.
  virtual ScriptRun renew(const std::string& key, const HoldMark& name, milliseconds ttl) const = 0;
  /// Answers 1 or 0. The waiters of the library are told.
  virtual ScriptRun release(const std::string& key, const HoldMark& name) const = 0;
  /// As release(), of a hold that is kept for `rest`: as renew(), and waiters that sleep for as
  /// long as the lease was are told, where they look at it anew.
  virtual ScriptRun keep(const std::string& key, const HoldMark& name, milliseconds rest) const {
    return renew(key, name, rest);
  }
  /// With no victim it changes nothing, and answers {1, PTTL, what is found, the name of the
  /// victim}, or {0}, or {-1, what it is}. With that name it answers {1} or, where another holds
  /// the key by then, {0}; the waiters are told, too. A request that is sent twice would otherwise
  /// evict a holder that came in between.
  virtual ScriptRun evict(const std::string& key, const std::string& victim) const = 0;
  /// Plain requests that change nothing. The first is the PTTL.
  virtual std::vector<Request> look(const std::string& key) const = 0;
  /// The holder that the replies to look() show, none of them an error; nothing where the key is
  /// free. Throws Error{wrong_data} where it is no lock of this layout.
  virtual std::optional<Holder> seen_in(const std::string& key,
                                        const std::vector<Reply>& replies) const = 0;
  /// How many parts the answer {0, PTTL, what is found, ..} of a take has.
  virtual std::size_t parts_of_a_refusal() const { return 3; }
  /// The holder behind {.., PTTL, what is found, ..}.
  virtual Holder holder_in(const std::string& key, const Reply& answer) const = 0;
  /// The channels on which the library tells of a release; none where it does not. The first is of
  /// this key alone, and on the others its name is what is told.
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
/// The one of the layout's kind.
std::unique_ptr<LockDriver> driver_of(Layout layout, bool cluster);

/// The 128 random bits of a token as 22 characters of base64url, and as a UUID. A text that is no
/// token of `acquire` has none, and names no hold.
std::string base64url_of(const Token& token);
std::string uuid_of(const Token& token);

/// A holder as another library shows it: `library` and the lease, with the reply to PTTL.
Holder foreign_holder(std::string library, const Reply& pttl);

}  // namespace dlock
