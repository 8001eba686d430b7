#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "cas/cas_backend.hpp"

namespace dlock {

/// Of a client that asks for no lease.
constexpr milliseconds usual_session{30'000};

/// The session for leases of `ttl`: what is killed is to be gone with its lease, and the library
/// needs some time to notice that a server does not answer.
milliseconds session_for(milliseconds ttl);

/// The ZooKeeper of these servers, not connected yet, for records whose names begin with `prefix`.
/// `shown`: its URL for people; `chroot`: empty, or the node below which all is kept; `session`:
/// how long its sessions are to outlive their last request.
std::unique_ptr<CasBackend> open_zookeeper(const std::vector<Endpoint>& servers,
                                           const std::string& shown, const std::string& chroot,
                                           const std::string& prefix, milliseconds session);

}  // namespace dlock
