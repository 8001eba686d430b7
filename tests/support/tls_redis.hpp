#pragma once

#include <string>

#include "base/endpoint.hpp"
#include "support/process.hpp"
#include "support/redis_server.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {

/// A RedisServer that listens with TLS, and the CA for its clients.
class TlsRedis {
 public:
  explicit TlsRedis(RedisOptions options = {});

  /// The endpoint of the server, or of a proxy in front of it on another port.
  Endpoint endpoint(int port = 0) const;
  std::string url(int port = 0) const { return endpoint(port).name(); }
  /// Adds DLOCK_SERVER and DLOCK_TLS_CA for it.
  ProcessOptions with_server(ProcessOptions options = {}) const;
  /// Replaces the server's certificate.
  void show(const Certificate& certificate) const;
  /// Sets a parameter of the server.
  void set(const std::string& name, const std::string& value) const;

  TestCa ca;
  Certificate own;
  RedisServer server;
};

}  // namespace dlock::test
