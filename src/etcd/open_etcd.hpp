#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "cas/cas_backend.hpp"

namespace dlock {

/// The etcd of these members, not connected yet. `shown`: its URL for people.
std::unique_ptr<CasBackend> open_etcd(const std::vector<Endpoint>& servers,
                                      const std::string& shown);

}  // namespace dlock
