#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/facts.hpp"
#include "redis/protocol_text.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

/// One thing dlock's user must be allowed, and a request that tries it on scratch keys.
struct Right {
  std::string word;  ///< as after `+` in ACL SETUSER: `zrange`, `cluster|slots`
  Request trial;
  bool spends_link = false;  ///< the connection is of no use for others afterwards
};

/// All that dlock sends itself or calls from its script, in the order of the printed ACL. The
/// trials fit together: tried in turn, they leave at most the keys of `scratch`, which then expire.
std::vector<Right> rights_needed(const DoctorOptions& exam, const Endpoint& server,
                                 const KeyNames& scratch);

/// What the user lacks, as ACL SETUSER takes it, by the NOPERM that `right` was refused with: the
/// keys or channels of `pattern`, or the command.
std::string lacking(const Right& right, const std::string& refusal, const std::string& pattern);

/// `~` and `&` patterns for what begins with `prefix`, without the mark. ACL rules hold no blanks,
/// and redis-cli and ACL files read quotes and other bytes their own way: `?` stands for each.
std::string acl_pattern(const std::string& prefix);

/// The whole line for a user that may do what dlock needs and nothing else, as redis-cli takes it.
std::string acl_line(const DoctorOptions& exam, const Endpoint& server);

/// The same for the sentinels.
std::string sentinel_acl_line(const Endpoint& sentinel);

}  // namespace dlock
