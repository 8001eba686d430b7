#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

/// What one server of a ZooKeeper says of itself.
struct ZooKeeperServerStatus {
  std::string address;
  std::string trouble{};  ///< why it has not answered; empty: it has
  Cause cause = Cause::none;
  std::chrono::nanoseconds answered_in{0};  ///< with the connection
  std::string version{};                    ///< empty: not told
  /// `leader`, `follower`, `observer` or `standalone`; empty: it does not serve, or does not tell.
  std::string mode{};
  std::string refusal{};  ///< what it said in place of that
};

/// What a ZooKeeper says of itself as a whole.
struct ZooKeeperStatus {
  std::string
      trouble{};  ///< why there is no session, or nothing can be written; empty: all is well
  milliseconds session{0};                 ///< granted
  std::chrono::nanoseconds round_trip{0};  ///< of a write and a read
  microseconds ahead{0};                   ///< the leader's wall clock, of this host's
};

/// Asks the server at `endpoint` alone, by its command `srvr`. Trouble with it is a fact, and never
/// thrown.
ZooKeeperServerStatus ask_server(const Endpoint& endpoint, const CallOptions& call_options);

/// Opens a session of `session` and writes the clock's node.
ZooKeeperStatus ask_zookeeper(const std::vector<Endpoint>& servers, const std::string& shown,
                              const std::string& chroot, const std::string& prefix,
                              milliseconds session, const CallOptions& call_options);

}  // namespace dlock
