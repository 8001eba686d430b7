#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"

namespace dlock {

/// From facts to findings: pure, and in the order in which people read them.
Findings judge_zookeeper(const ZooKeeperFacts& facts);

/// The worth of locks there, in some words.
std::string zookeeper_label(const ZooKeeperFacts& facts);

/// Examines a ZooKeeper, `shown` to people by that name, tries a lock there by two stores of
/// `open`, and judges it. `session`: the timeout to ask for.
Diagnosis diagnose_zookeeper(const std::vector<Endpoint>& servers, const std::string& shown,
                             const std::string& chroot, milliseconds session,
                             const DoctorOptions& exam, const std::function<StorePtr()>& open);

/// What an administrator runs to let dlock's user lock there.
std::string zookeeper_rights(const std::vector<Endpoint>& servers, const std::string& chroot);

}  // namespace dlock
