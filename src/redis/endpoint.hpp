#pragma once

#include <optional>
#include <string>

namespace dlock {

/// One Redis or Valkey server and how to log in to it. Constant once made; never shown but through
/// name().
struct Endpoint {
  std::string host;  ///< name or address; unused with a socket
  int port = 6379;
  std::string socket_path;  ///< a Unix socket, in place of host and port
  int database = 0;
  std::optional<std::string> user;
  std::optional<std::string> password;

  bool is_unix() const { return !socket_path.empty(); }
  /// `redis://db1:6379/0`, `unix:///run/redis.sock`: escaped, without credentials.
  std::string name() const;
};

}  // namespace dlock
