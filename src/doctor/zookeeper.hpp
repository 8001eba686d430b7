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
Findings judge_zookeeper(const ZooKeeperFacts& facts);

/// A short label that says how safe locks are there.
std::string zookeeper_label(const ZooKeeperFacts& facts);

/// Examines a ZooKeeper, tries a lock there with two stores from `open`, and runs the checks.
/// `shown` is its name in messages, `session` the timeout to request.
Diagnosis diagnose_zookeeper(const std::vector<Endpoint>& servers, const std::string& shown,
                             const std::string& chroot, milliseconds session,
                             const DoctorOptions& exam, const std::function<StorePtr()>& open);

/// The commands by which an administrator lets dlock's user lock there.
std::string zookeeper_rights(const std::vector<Endpoint>& servers, const std::string& chroot);

}  // namespace dlock
