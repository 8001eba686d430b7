#pragma once

#include "doctor/facts.hpp"
#include "doctor/finding.hpp"

namespace dlock {

// From facts to findings: pure, and in the order in which people read them.

/// One server that was examined, on its own or as the master of several.
Findings judge_server(const ServerFacts& facts);

// The parts of it that need no more than what the server says of itself, in judge_keeping.cpp: what
// it forgets, and when.
Finding judge_eviction(const ServerFacts& facts);
Finding judge_memory(const ServerFacts& facts);
Finding judge_persistence(const ServerFacts& facts);
Finding judge_replication(const ServerFacts& facts);
Finding judge_uptime(const ServerFacts& facts);
/// The same for one of several that decide by majority.
Finding judge_restart(const ServerFacts& facts);
/// Whether it has a vote at this moment.
Finding judge_vote(const ServerFacts& facts);

/// What locks on this server are worth, and why: the label of the deployment.
Finding judge_label(const ServerFacts& facts);

/// Sentinels: those of the URL, against each other and the ttl.
Findings judge_sentinels(const std::vector<SentinelFacts>& sentinels, const DoctorOptions& exam);
/// A Cluster as a whole; its masters are judged as servers.
Findings judge_cluster(const ClusterFacts& facts);
/// Servers that decide by majority, against each other; each is judged as a server, too.
Findings judge_quorum(const std::vector<ServerFacts>& servers);
/// Whether a lock outlives the time in which there is no master, if that begins after `silence`.
Finding judge_failover(milliseconds silence, const std::string& setting, const DoctorOptions& exam);
Findings judge_local(const LocalFacts& facts);

/// The findings of several servers, with their names, as one list: where they say the same it is
/// said once.
Findings merged(const std::vector<std::pair<std::string, Findings>>& servers);

}  // namespace dlock
