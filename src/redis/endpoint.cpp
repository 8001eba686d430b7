#include "redis/endpoint.hpp"

#include "base/escape.hpp"

namespace dlock {

std::string Endpoint::name() const {
  if (is_unix()) {
    const std::string query = database == 0 ? "" : "?db=" + std::to_string(database);
    return "unix://" + escaped(socket_path) + query;
  }
  const bool ipv6 = host.find(':') != std::string::npos;
  const std::string shown = ipv6 ? "[" + escaped(host) + "]" : escaped(host);
  const std::string path = database == 0 ? "" : "/" + std::to_string(database);
  return "redis://" + shown + ":" + std::to_string(port) + path;
}

}  // namespace dlock
