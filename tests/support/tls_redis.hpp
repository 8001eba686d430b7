#pragma once

#include <string>

#include "base/endpoint.hpp"
#include "support/process.hpp"
#include "support/redis_server.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {

/// A RedisServer that listens under TLS, and the CA its clients are to trust.
class TlsRedis {
 public:
  explicit TlsRedis(RedisOptions options = {});

  /// How to reach it, or a proxy in front of it at another port.
  Endpoint endpoint(int port = 0) const;
  std::string url(int port = 0) const { return endpoint(port).name(); }
  /// DLOCK_SERVER and DLOCK_TLS_CA for it.
  ProcessOptions with_server(ProcessOptions options = {}) const;
  /// Another certificate from now on.
  void show(const Certificate& certificate) const;
  /// A further setting.
  void set(const std::string& name, const std::string& value) const;

  TestCa ca;
  Certificate own;
  RedisServer server;
};

}  // namespace dlock::test
