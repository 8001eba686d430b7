#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "doctor/facts.hpp"
#include "local/directory.hpp"
#include "lock/claim.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

// A failure of a server becomes a fact; none of these functions throws it.

/// Examines one server, and tries a lock on `scratch` if it is a master of the expected kind. Takes
/// about 300 ms, to see the pace of its clock. Leaves nothing behind.
ServerFacts examine_server(const Endpoint& endpoint, const DoctorOptions& exam,
                           const LockKey& scratch);

/// Asks one sentinel for its master of this name.
SentinelFacts examine_sentinel(const Endpoint& sentinel, const std::string& master_name);

/// Asks the seeds in turn, until one describes the Cluster.
ClusterFacts examine_cluster(const std::vector<Endpoint>& seeds);
/// The slots that migrate from or to `master` now; none if it does not answer.
std::set<int> open_slots_of(const Endpoint& master);

// Requests to a Redis, and its replies as facts.

/// The replies, error replies included. Throws Error{unavailable} after some seconds without any.
std::vector<Reply> ask_all(RedisConnection& connection, std::span<const Request> requests);
Reply ask(RedisConnection& connection, const Request& request);

/// The reason in an error reply: `NOPERM`, `unknown command`, or its text, escaped; empty for other
/// replies.
std::string refusal_of(const Reply& reply);

/// The text or number of a reply as text.
std::string text_of(const Reply& reply);

/// Reads `name:value` lines, as in the reply of INFO.
ServerInfo told_in_lines(const Reply& reply);
/// Reads names and values in turn, as in the replies of CONFIG GET, HELLO and SENTINEL MASTER.
ServerInfo told_in_pairs(const Reply& reply);

/// The server's role, from the first reply that has it: `master`, `slave`, `sentinel`,
/// `active-replica`, or empty. Its mode is `standalone`, `cluster` or `sentinel`.
std::string role_of(const ServerFacts& facts);
std::string mode_of(const ServerFacts& facts);

}  // namespace dlock
