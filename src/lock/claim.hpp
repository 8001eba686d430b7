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

/// The fault of `text` as a key, as the end of a sentence ("is empty"); nothing if it is valid.
std::optional<std::string> key_fault(std::string_view text);

/// The owner of holds, a path: `a/b` is below `a` and re-enters the holds of `a`.
struct Owner {
  std::string text;
  auto operator<=>(const Owner&) const = default;
  /// Whether this owner is `other` or below it. A deeply nested path has lost its first components,
  /// so it may begin with a later part of the other's path.
  bool is_or_below(const Owner& other) const;
};

constexpr std::size_t deepest_owner = 16;
constexpr std::size_t longest_owner_id = 128;

/// A new owner below `above` (empty: a top-level owner): one more component of 64 random bits. A
/// path of full depth loses its first component.
Owner new_owner_below(const std::optional<Owner>& above);

/// The fault of an owner path from DLOCK_OWNER, or of the single component of `--owner`; nothing if
/// it is valid.
std::optional<std::string> owner_path_fault(std::string_view text);
std::optional<std::string> owner_id_fault(std::string_view text);

/// Identifies one hold: the owner and 128 random bits. The client makes it before its first
/// request, so that every request can be repeated. Any client that has the token may renew and
/// release. The token of several keys ends in their number: `OWNER:BITS.3`.
struct Token {
  std::string text;
  auto operator<=>(const Token&) const = default;
};

Token new_token(const Owner& owner, std::size_t keys = 1);
/// The number of keys for which new_token() made `token`.
std::size_t keys_of(const Token& token);
/// The owner for which new_token() made `token`. If the token re-entered a hold, this is an owner
/// below the owner of that hold.
Owner owner_in(const Token& token);
std::optional<std::string> token_fault(std::string_view text);

/// How many owners may hold a key together.
struct Limit {
  std::int64_t owners = 1;  ///< 0: no limit
  bool operator==(const Limit&) const = default;
  bool unlimited() const { return owners == 0; }
  /// Whether the limit allows `count` owners.
  bool admits(std::int64_t count) const { return unlimited() || count <= owners; }
};

constexpr Limit exclusive{1};
constexpr Limit no_limit{0};
constexpr std::int64_t largest_limit = 1'000'000;

/// How many of several servers must grant a claim of this limit. Any limit + 1 owners must meet on
/// one server, which then refuses the last of them. This takes a majority for exclusive locks, and
/// more for semaphores (with only a majority each, five owners fit into a semaphore of three on
/// five servers). Readers need to meet only writers, so a majority is enough for them.
std::size_t votes_needed(std::size_t servers, Limit limit);

/// The command of dlock by which a client holds its lock.
enum class Via {
  run,
  attach,   ///< acquire --attach
  acquire,  ///< no dlock runs for the hold: nobody renews it, or hears a request to stop
};

/// `run`, `attach` or `acquire`.
const char* name_of(Via via);

/// The process that made a request, as other clients see it in refusals and `inspect`.
struct Who {
  std::string host;
  pid_t pid = 0;
  std::string user;
  std::string command;  ///< base name of the program; not its arguments, which may hold secrets
  std::string label;
  /// The process id of `command` if `pid` is the dlock that runs it; 0: the same process, or
  /// unknown.
  pid_t command_pid = 0;
  Via via = Via::run;
  /// Compares everything except command_pid, which may not be known yet.
  bool operator==(const Who& other) const {
    return host == other.host && pid == other.pid && user == other.user &&
           command == other.command && label == other.label;
  }
};

/// The calling process, with `command` and `label` as given.
Who this_process(std::string command, std::string label);

/// How a hold stays alive.
enum class Liveness {
  renewal,  ///< a lease that the holder renews
  process,  ///< the life of the process that asked, if the engine sees processes (`run` on local:);
            ///< on other engines the same as `renewal`
};

/// One complete request for one key. acquire() repeats it unchanged, or with a new token.
struct Claim {
  LockKey key;
  Owner owner;
  Token token;
  Limit limit = exclusive;
  milliseconds ttl{0};
  milliseconds floor{0};  ///< keep the key taken this long after the grant (`--min-hold`)
  Liveness upkeep = Liveness::renewal;
  Who who;
  bool latest = false;  ///< supersedes earlier waiters that set it, and is superseded by later ones
};

/// A claim of a script that passes only key and token: enough to renew and to release.
Claim claim_named(const LockKey& key, const Token& token);

}  // namespace dlock
