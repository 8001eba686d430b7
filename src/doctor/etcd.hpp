#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Pure functions from facts to findings, in the order in which they are shown.
Findings judge_etcd(const EtcdFacts& facts);

/// A short label that says how safe locks are there.
std::string etcd_label(const EtcdFacts& facts);

/// Whether a member of this version may end a lease that lives
/// (https://github.com/etcd-io/etcd/issues/15247).
bool loses_leases(const std::string& version);

/// Examines an etcd, tries a lock there with two stores from `open`, and runs the checks. `shown`
/// is its name in messages.
Diagnosis diagnose_etcd(const std::vector<Endpoint>& servers, const std::string& shown,
                        const DoctorOptions& exam, const std::function<StorePtr()>& open);

/// The commands by which an administrator lets dlock's user lock there.
std::string etcd_rights(const std::vector<Endpoint>& servers, const std::string& prefix);

}  // namespace dlock
