#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "cas/cas_backend.hpp"

namespace dlock {

/// The session timeout of a client that asks for no lease.
constexpr milliseconds usual_session{30'000};

/// The session timeout for leases of `ttl`. The holds of a killed process should end with its
/// lease, but the library needs some time to notice that a server does not answer.
milliseconds session_for(milliseconds ttl);

/// Opens the ZooKeeper of these servers, not connected yet, for records whose names begin with
/// `prefix`. `shown`: its URL for messages; `chroot`: empty, or the parent node of all records;
/// `session`: how long its sessions outlive their last request.
std::unique_ptr<CasBackend> open_zookeeper(const std::vector<Endpoint>& servers,
                                           const std::string& shown, const std::string& chroot,
                                           const std::string& prefix, milliseconds session);

}  // namespace dlock
