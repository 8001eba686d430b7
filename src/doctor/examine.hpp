#pragma once

#include <set>

#include "doctor/facts.hpp"
#include "local/directory.hpp"
#include "lock/claim.hpp"

namespace dlock {

// Asking around. Trouble with a server is a fact, and never thrown.

/// Looks at one server as dlock would reach it, and tries a lock on `scratch` if it is a master of
/// the kind expected; takes some 300 ms, for the pace of its clock. Leaves nothing behind.
ServerFacts examine_server(const Endpoint& endpoint, const DoctorOptions& exam,
                           const LockKey& scratch);

/// Asks one sentinel for its master of this name.
SentinelFacts examine_sentinel(const Endpoint& sentinel, const std::string& master_name);

/// Asks each seed; the first that knows says what the Cluster is.
ClusterFacts examine_cluster(const std::vector<Endpoint>& seeds);
/// The slots that `master` gives away or takes just now; none if it does not tell.
std::set<int> open_slots_of(const Endpoint& master);

}  // namespace dlock
