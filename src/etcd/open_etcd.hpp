#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "cas/cas_backend.hpp"

namespace dlock {

/// Makes the backend for these members, without connecting. `shown` is its URL for people.
std::unique_ptr<CasBackend> open_etcd(const std::vector<Endpoint>& servers,
                                      const std::string& shown);

}  // namespace dlock
