#pragma once

#include "doctor/facts.hpp"
#include "doctor/finding.hpp"

namespace dlock {

// Pure functions from facts to findings, in the order in which they are shown.

/// The checks for one server, by itself or as one of several masters.
Findings judge_server(const ServerFacts& facts);

// Its checks in redis_durability.cpp: the data that the server may lose, and when.
Finding judge_eviction(const ServerFacts& facts);
Finding judge_memory(const ServerFacts& facts);
Finding judge_persistence(const ServerFacts& facts);
Finding judge_replication(const ServerFacts& facts);
Finding judge_uptime(const ServerFacts& facts);
/// The same for one node of several that decide by majority.
Finding judge_restart(const ServerFacts& facts);
/// Whether the node has a vote now.
Finding judge_vote(const ServerFacts& facts);

/// The label of the deployment: how safe locks on this server are, and why.
Finding judge_label(const ServerFacts& facts);

/// Checks the sentinels of the URL against each other and the ttl.
Findings judge_sentinels(const std::vector<SentinelFacts>& sentinels, const DoctorOptions& exam);
/// Checks a Cluster as a whole; judge_server checks its masters.
Findings judge_cluster(const ClusterFacts& facts);
/// Checks the nodes of a majority against each other; judge_server checks each of them.
Findings judge_quorum(const std::vector<ServerFacts>& servers);
/// Whether a lease outlives the time without a master, if the failover begins after `silence`.
Finding judge_failover(milliseconds silence, const std::string& setting, const DoctorOptions& exam);
Findings judge_local(const LocalFacts& facts);

/// One list of the findings of several servers, with their names. Equal findings are merged.
Findings merged(const std::vector<std::pair<std::string, Findings>>& servers);

}  // namespace dlock
