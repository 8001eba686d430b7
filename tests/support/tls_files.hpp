#pragma once

#include <string>

#include "base/endpoint.hpp"
#include "support/process.hpp"
#include "support/redis_server.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// A certificate in PEM, and its key.
struct Certificate {
  std::string file;
  std::string key;
};

/// The host names and addresses of the servers of tests.
inline constexpr const char* loopback_names = "DNS:localhost,IP:127.0.0.1";

/// A certificate authority for one test, made by the openssl command; keys are EC P-256. Its files
/// are removed with the object.
class TestCa {
 public:
  /// `name` is its common name.
  explicit TestCa(const std::string& name = "Test CA");

  const std::string& file() const { return own_.file; }
  /// Issues a certificate for `alt_names`, in openssl's syntax; with -1 `days` it expired
  /// yesterday. Each certificate of a CA needs its own `name`.
  Certificate issue(const std::string& name, const std::string& alt_names = loopback_names,
                    int days = 2) const;
  /// The same, signed by its own key instead of a CA.
  Certificate self_signed(const std::string& name) const;
  /// A directory that holds the CA under its hash.
  std::string hashed_directory() const;
  /// The directory, for further files.
  const TempDir& dir() const { return dir_; }

 private:
  Certificate make_root(const std::string& name, const std::string& alt_names) const;

  TempDir dir_;
  Certificate own_;
};

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
