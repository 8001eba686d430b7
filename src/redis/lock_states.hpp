#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lock/store.hpp"
#include "redis/connection.hpp"

namespace dlock {

/// How `inspect` gets at its servers: one, or all of a Cluster.
struct LockReader {
  std::string prefix;  ///< of every key
  std::string name;    ///< of the store, for trouble
  /// The replies to requests of which each key in turn has `requests_a_key`.
  std::function<std::vector<Reply>(const std::vector<LockKey>& keys,
                                   const std::vector<Request>& requests)>
      read;
  /// All keys that match, sorted and without doubles.
  std::function<std::vector<LockKey>(const std::vector<std::string>& globs)> find;
};

constexpr std::size_t requests_a_key = 8;

/// What Store::inspect answers: no script is needed for it.
std::vector<KeyState> inspect_locks(const Query& query, const LockReader& reader);

}  // namespace dlock
