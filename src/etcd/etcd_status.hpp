#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

/// What one member of an etcd says of itself.
struct EtcdMemberStatus {
  std::string address;
  std::string trouble{};  ///< why it has not answered; empty: it has
  Cause cause = Cause::none;
  bool denied = false;                      ///< user, password or files of TLS are wrong
  std::chrono::nanoseconds answered_in{0};  ///< the first time, with the connection
  std::chrono::nanoseconds round_trip{0};
  std::string version{};
  bool has_leader = false;
  std::int64_t database_size = 0;
  std::int64_t size_in_use = 0;
};

/// What an etcd says of itself as a whole. Texts are as they came.
struct EtcdStatus {
  std::string trouble{};   ///< why a majority has not answered; empty: one has
  std::size_t voters = 0;  ///< 0: not told
  std::vector<std::string> alarms{};
  std::string alarms_not_told{};
  std::int64_t revision = 0;
  bool compacted = true;  ///< at least once
};

/// Asks the member at `endpoint` alone. Trouble with it is a fact, and never thrown.
EtcdMemberStatus ask_member(const Endpoint& endpoint, const CallOptions& call_options);

/// Asks what takes a majority. Needs to read keys that begin with `prefix`.
EtcdStatus ask_etcd(const std::vector<Endpoint>& servers, const std::string& prefix,
                    const CallOptions& call_options);

}  // namespace dlock
