#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "lock/claim.hpp"

namespace dlock {

/// How a family of libraries stores a lock.
enum class LayoutKind {
  string,    ///< a string that names the hold
  redisson,  ///< a hash with a field for the hold
  symfony,   ///< a sorted set with a member for the hold
};

/// What a release tells the waiters of a library.
enum class ReleaseSignal {
  none,
  channel,  ///< the name of the key, published on `REGISTRY-channel:KEY` and `REGISTRY-channel`
  list,     ///< an element in the list `lock-signal:N`, for a second
};

/// Whether the user has to name a part of the key that only the application knows.
enum class LayoutPart { none, optional, required };

/// One name that --compat takes. The key of the lock N is `before`, the part, `between` and N.
struct LayoutRow {
  const char* name;
  LayoutKind kind;
  const char* before = "";
  LayoutPart part = LayoutPart::none;
  const char* part_name = "";  ///< as help and messages call it
  const char* between = "";
  ReleaseSignal signal = ReleaseSignal::none;
  bool dated = false;   ///< the value says since when and from which host, as ShedLock reads it
  bool fenced = false;  ///< each grant takes a number
};

/// Every name, in the order of the manual.
std::span<const LayoutRow> layouts();

/// Another library's keys: what --compat names.
struct Layout {
  const LayoutRow* row = nullptr;
  std::string part;

  LayoutKind kind() const { return row->kind; }
  /// The name of the key in Redis.
  std::string key_of(const LockKey& key) const;
  /// Whether several independent servers may decide by majority, as the libraries do it.
  bool may_be_redlock() const;
};

/// Reads `NAME` or `NAME:PART`. Throws Error{usage}, which lists the names where there is no such.
Layout parse_layout(std::string_view text);

/// What a lock's value tells of its holder.
struct Recognised {
  std::string library;  ///< `redis-py`, or several that write alike: `RedLock.net or pottery`
  std::string host;     ///< where the value tells
  std::optional<WallTime> since;
};

/// Of the string `value` (its first 200 bytes) at `key`; nothing where no library writes such.
std::optional<Recognised> recognise_string(std::string_view key, std::string_view value);

/// Whether a field of a hash is the owner of a Redisson lock: a client's id and a thread.
bool is_redisson_owner(std::string_view field);

/// Whether a member of a sorted set is one that Symfony Lock or dlock writes.
bool is_symfony_member(std::string_view member);

}  // namespace dlock
