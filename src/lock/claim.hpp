#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace dlock {

/// The name of a lock, chosen by the user: 1 to 512 bytes of UTF-8 without NUL, CR or LF.
struct LockKey {
  std::string text;
  auto operator<=>(const LockKey&) const = default;
};

/// The fault of `text` as a key, as the end of a sentence ("is empty"); nothing if it is one.
std::optional<std::string> key_fault(std::string_view text);

/// The owner of holds: a path. `a/b` stands below `a`, and re-enters what `a` holds.
struct Owner {
  std::string text;
  auto operator<=>(const Owner&) const = default;
  /// Whether this owner is `other` or below it. The path of an owner below many has lost its
  /// beginning, so it begins within the other's.
  bool is_or_below(const Owner& other) const;
};

constexpr std::size_t deepest_owner = 16;
constexpr std::size_t longest_owner_id = 128;

/// A new owner below `above` (empty: below nobody): one more component of 64 random bits, without
/// the first of as many as a path may have.
Owner new_owner_below(const std::optional<Owner>& above);

/// The fault of an owner path as DLOCK_OWNER brings it, or with one component as `--owner`
/// does; nothing if all is well.
std::optional<std::string> owner_path_fault(std::string_view text);
std::optional<std::string> owner_id_fault(std::string_view text);

/// Names one hold: the owner and 128 random bits, made by the client before it first asks, so that
/// every request can be repeated. Whoever shows it may renew and release.
struct Token {
  std::string text;
  auto operator<=>(const Token&) const = default;
};

Token new_token(const Owner& owner);
/// The owner that new_token() made `token` for: below that of the hold, where it re-entered one.
Owner owner_in(const Token& token);
std::optional<std::string> token_fault(std::string_view text);

/// How many owners may hold a key together.
struct Limit {
  std::int64_t owners = 1;  ///< 0: no limit
  bool operator==(const Limit&) const = default;
  bool unlimited() const { return owners == 0; }
  /// Whether `count` owners are within it.
  bool admits(std::int64_t count) const { return unlimited() || count <= owners; }
};

constexpr Limit exclusive{1};
constexpr Limit no_limit{0};
constexpr std::int64_t largest_limit = 1'000'000;

/// How many of several servers have to hold a claim of this limit. Any limit + 1 owners must meet
/// on one server, which then refuses the last of them: a majority for exclusive locks, more for
/// semaphores (with a majority each, five owners fit into a semaphore of three on five servers).
/// Readers need to meet writers only.
std::size_t votes_needed(std::size_t servers, Limit limit);

/// The process behind a request, as others see it in refusals and `inspect`.
struct Who {
  std::string host;
  pid_t pid = 0;
  std::string user;
  std::string command;  ///< base name of the program; its arguments may hold secrets and stay here
  std::string label;
  /// The process of `command`, where `pid` is the dlock that runs it; 0: the same, or not known.
  pid_t command_pid = 0;
  /// The same process, whether or not it is known yet what it runs.
  bool operator==(const Who& other) const {
    return host == other.host && pid == other.pid && user == other.user &&
           command == other.command && label == other.label;
  }
};

/// The calling process, with `command` and `label` as given.
Who this_process(std::string command, std::string label);

/// The way in which a hold is kept alive.
enum class Liveness {
  renewal,  ///< its lease, which somebody renews
  process,  ///< the process that asked, where the engine can see processes (`run` on local:);
            ///< elsewhere the same as renewal
};

/// One request for one key, whole: made once and repeated as it is.
struct Claim {
  LockKey key;
  Owner owner;
  Token token;
  Limit limit = exclusive;
  milliseconds ttl{0};
  milliseconds floor{0};  ///< keep the key taken this long after the grant (`--min-hold`)
  Liveness upkeep = Liveness::renewal;
  Who who;
  bool latest = false;  ///< supersedes the waiters that said so before, as a later one does this
};

/// A claim of which a script has told key and token alone: enough to renew and to release.
Claim claim_named(const LockKey& key, const Token& token);

}  // namespace dlock
