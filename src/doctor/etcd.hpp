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
Findings judge_etcd(const EtcdFacts& facts);

/// The worth of locks there, in some words.
std::string etcd_label(const EtcdFacts& facts);

/// Whether a member of this version may end a lease that lives
/// (https://github.com/etcd-io/etcd/issues/15247).
bool loses_leases(const std::string& version);

/// Examines an etcd, `shown` to people by that name, tries a lock there by two stores of `open`,
/// and judges it.
Diagnosis diagnose_etcd(const std::vector<Endpoint>& servers, const std::string& shown,
                        const DoctorOptions& exam, const std::function<StorePtr()>& open);

/// What an administrator runs to let dlock's user lock there.
std::string etcd_rights(const std::vector<Endpoint>& servers, const std::string& prefix);

}  // namespace dlock
