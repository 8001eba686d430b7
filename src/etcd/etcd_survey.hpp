#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

/// The status that one member of an etcd reports.
struct EtcdMemberStatus {
  std::string address;
  Fault unreachable{};                       ///< empty if it answered
  std::chrono::nanoseconds connected_in{0};  ///< includes the first answer
  std::chrono::nanoseconds round_trip{0};
  std::string version{};
  std::int64_t database_size = 0;
  std::int64_t size_in_use = 0;
};

/// The status of an etcd as a whole. Texts are not escaped.
struct EtcdStatus {
  std::string trouble{};   ///< why a majority did not answer; empty if it did
  std::size_t voters = 0;  ///< 0: not reported
  std::vector<std::string> alarms{};
  std::string alarms_not_told{};
};

/// Asks only the member at `endpoint`. A failure to answer is part of the status, not an Error.
EtcdMemberStatus ask_member(const Endpoint& endpoint, const CallOptions& call_options);

/// Asks for everything that needs a majority. The user of `servers` must be allowed to read keys
/// that begin with `prefix`.
EtcdStatus ask_etcd(const std::vector<Endpoint>& servers, const std::string& prefix,
                    const CallOptions& call_options);

}  // namespace dlock
