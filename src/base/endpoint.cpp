#include "base/endpoint.hpp"

#include "base/escape.hpp"

namespace dlock {

std::string Endpoint::address() const {
  if (is_unix()) return escaped(socket_path);
  const bool ipv6 = host.find(':') != std::string::npos;
  const std::string shown = ipv6 ? "[" + escaped(host) + "]" : escaped(host);
  return shown + ":" + std::to_string(port);
}

std::string Endpoint::name() const {
  const std::string number = std::to_string(database);
  if (is_unix()) return "unix://" + address() + (database == 0 ? "" : "?db=" + number);
  const std::string scheme = tls ? "rediss://" : "redis://";
  return scheme + address() + (database == 0 ? "" : "/" + number);
}

}  // namespace dlock
