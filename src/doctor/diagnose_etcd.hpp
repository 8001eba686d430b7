#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "doctor/facts.hpp"
#include "doctor/finding.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Examines an etcd, `shown` to people by that name, tries a lock there by two stores of `open`,
/// and judges it.
Diagnosis diagnose_etcd(const std::vector<Endpoint>& servers, const std::string& shown,
                        const DoctorOptions& exam, const std::function<StorePtr()>& open);

/// What an administrator runs to let dlock's user lock there.
std::string etcd_rights(const std::vector<Endpoint>& servers, const std::string& prefix);

}  // namespace dlock
