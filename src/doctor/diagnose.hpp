#pragma once

#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "local/directory.hpp"

namespace dlock {

// From the place where locks live to a diagnosis: examines, judges, and puts the findings in order.

Diagnosis diagnose_server(const Endpoint& server, DoctorOptions exam);
/// `master` says how to log in to the one that the sentinels name.
Diagnosis diagnose_sentinels(const std::vector<Endpoint>& sentinels, const std::string& master_name,
                             const Endpoint& master, DoctorOptions exam);
Diagnosis diagnose_cluster(const std::vector<Endpoint>& seeds, DoctorOptions exam);
/// Independent servers of which a majority decides.
Diagnosis diagnose_quorum(const std::vector<Endpoint>& servers, DoctorOptions exam);
Diagnosis diagnose_directory(const DirectorySettings& settings);

}  // namespace dlock
