#pragma once

#include <string>
#include <vector>

#include "doctor/doctor.hpp"
#include "redis/entry_format.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

/// A right that dlock's user needs, and a request that tries it on scratch keys.
struct Right {
  std::string word;  ///< as after `+` in ACL SETUSER: `zrange`, `cluster|slots`
  Request trial;
  bool spends_link = false;  ///< the connection cannot be used for other requests afterwards
};

/// All commands that dlock sends or calls in its scripts, in the order of the printed ACL. Tried in
/// this order, the requests leave only keys of `scratch`, which expire.
std::vector<Right> rights_needed(const DoctorOptions& options, const Endpoint& server,
                                 const KeyNames& scratch);

/// The ACL pattern for keys and channels that begin with `prefix`, without its `~` or `&`. `?`
/// stands for blanks, quotes and other bytes that ACL rules, redis-cli or ACL files cannot hold.
std::string acl_pattern(const std::string& prefix);

/// The line for redis-cli that makes a user with exactly the rights that dlock needs.
std::string acl_line(const DoctorOptions& options, const Endpoint& server);

/// The line that makes such a user on a sentinel, where dlock only asks for the master's address.
std::string sentinel_acl_line(const Endpoint& sentinel);

}  // namespace dlock
