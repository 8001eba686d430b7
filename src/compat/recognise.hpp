#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace dlock {

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
