#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lock/claim.hpp"

namespace dlock {

/// How a family of libraries stores a lock.
enum class LayoutKind {
  string,    ///< a string that names the hold
  redisson,  ///< a hash with a field for the hold
  symfony,   ///< a sorted set with a member for the hold
};

/// How a library notifies its waiters of a release.
enum class ReleaseSignal {
  none,
  channel,  ///< the name of the key, published on `REGISTRY-channel:KEY` and `REGISTRY-channel`
  list,     ///< an element in the list `lock-signal:N`, for one second
};

/// Whether the user must name a part of the key that only the application knows.
enum class LayoutPart { none, optional, required };

/// One name that --compat accepts. The key of lock N is `before`, the part, `between` and N.
struct LayoutRow {
  const char* name;
  LayoutKind kind;
  const char* before = "";
  LayoutPart part = LayoutPart::none;
  const char* part_name = "";  ///< the name of the part in help and messages
  const char* between = "";
  ReleaseSignal signal = ReleaseSignal::none;
  bool dated = false;   ///< the value holds the time and the host, as in ShedLock
  bool fenced = false;  ///< each grant gets a fencing token
};

/// All names, in the order of the manual.
std::span<const LayoutRow> layouts();

/// The name of a hold in its key, and the part by which a client with only the token finds it
/// again.
struct HoldMark {
  std::string written;  ///< the value, the field or the member
  std::string proof;    ///< renewals and releases compare this: all of `written`, or its end
};

/// The keys of another library, as --compat names them.
struct Layout {
  const LayoutRow* row = nullptr;
  std::string part;

  LayoutKind kind() const { return row->kind; }
  /// The type of the key, in the spelling of TYPE.
  const char* type() const;
  /// The name of the key in Redis.
  std::string key_of(const LockKey& key) const;
  /// The keys of this lock in Redis: `key` itself, from key_of(), and those that its library keeps
  /// beside it.
  std::vector<std::string> keys_of_lock(const std::string& key) const;
  /// The channels on which the library announces a release of `key`; empty if it has none.
  std::vector<std::string> release_channels(const std::string& key) const;
  /// The name of the hold of this token; if the layout is dated, with the time of this call.
  HoldMark mark_of(const Token& token) const;
  /// Whether libraries of this layout can use a majority of independent servers.
  bool may_be_redlock() const;
};

/// Parses `NAME` or `NAME:PART`. Throws Error{usage}, and lists the names if NAME is unknown.
Layout parse_layout(std::string_view text);

}  // namespace dlock
