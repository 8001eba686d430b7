#include "support/tls_redis.hpp"

#include <utility>

#include "base/error.hpp"

namespace dlock::test {
namespace {

RedisOptions with_tls(RedisOptions options, const TestCa& ca, const Certificate& own) {
  options.tls = true;
  options.config.insert(options.config.end(),
                        {"tls-cert-file " + own.file, "tls-key-file " + own.key,
                         "tls-ca-cert-file " + ca.file(), "tls-auth-clients no"});
  return options;
}

void must(const Reply& reply) {
  if (reply.text != "OK") throw Error(ErrorKind::bug, reply.text);
}

}  // namespace

TlsRedis::TlsRedis(RedisOptions options)
    : own(ca.issue("server")), server(with_tls(std::move(options), ca, own)) {}

Endpoint TlsRedis::endpoint(int port) const {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = port == 0 ? server.tls_port() : port;
  endpoint.tls.emplace();
  endpoint.tls->ca = ca.file();
  return endpoint;
}

ProcessOptions TlsRedis::with_server(ProcessOptions options) const {
  options.env.emplace("DLOCK_SERVER", url());
  options.env.emplace("DLOCK_TLS_CA", ca.file());
  return options;
}

void TlsRedis::show(const Certificate& certificate) const {
  must(server.command(
      {"CONFIG", "SET", "tls-cert-file", certificate.file, "tls-key-file", certificate.key}));
}

void TlsRedis::set(const std::string& name, const std::string& value) const {
  must(server.command({"CONFIG", "SET", name, value}));
}

}  // namespace dlock::test
