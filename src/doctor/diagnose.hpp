#pragma once

#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "local/directory.hpp"

namespace dlock {

// Each function examines a deployment and runs the checks on the facts.

Diagnosis diagnose_server(const Endpoint& server, DoctorOptions exam);
/// `master` has the login for the master that the sentinels name.
Diagnosis diagnose_sentinels(const std::vector<Endpoint>& sentinels, const std::string& master_name,
                             const Endpoint& master, DoctorOptions exam);
Diagnosis diagnose_cluster(const std::vector<Endpoint>& seeds, DoctorOptions exam);
/// Independent servers that decide by majority.
Diagnosis diagnose_quorum(const std::vector<Endpoint>& servers, DoctorOptions exam);
Diagnosis diagnose_directory(const DirectorySettings& settings);

}  // namespace dlock
