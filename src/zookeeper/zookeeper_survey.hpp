#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

/// The status of one ZooKeeper server, as the server reports it.
struct ZooKeeperServerStatus {
  std::string address;
  Fault unreachable{};                      ///< empty if the server answered
  std::chrono::nanoseconds answered_in{0};  ///< includes connecting
  std::string version{};                    ///< empty: not reported
  /// `leader`, `follower`, `observer` or `standalone`; empty if the server serves no clients, or
  /// does not report it.
  std::string mode{};
  std::string refusal{};  ///< the answer of the server instead of version and mode
};

/// The status of a whole ZooKeeper.
struct ZooKeeperStatus {
  std::string trouble{};    ///< why there is no session, or no write succeeds; empty: all is well
  milliseconds session{0};  ///< as the server granted it
  std::chrono::nanoseconds round_trip{0};  ///< of a write and a read
  microseconds ahead{0};  ///< how far the leader's wall clock is ahead of this host's
};

/// Asks only the server at `endpoint`, by its command `srvr`. Reports a failure in the result
/// instead of throwing it.
ZooKeeperServerStatus ask_server(const Endpoint& endpoint, const CallOptions& call_options);

/// Opens a session with the timeout `session`, and reads the clock by a write to its node.
ZooKeeperStatus ask_zookeeper(const std::vector<Endpoint>& servers, const std::string& shown,
                              const std::string& chroot, const std::string& prefix,
                              milliseconds session, const CallOptions& call_options);

}  // namespace dlock
