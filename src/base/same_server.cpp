#include "base/same_server.hpp"

#include <sys/stat.h>

namespace dlock {
namespace {

/// A server listens to localhost by one address or by both.
bool is_same_port(const Endpoint& a, const Endpoint& b) {
  const auto is_its_address = [](const std::string& host) {
    return host == "127.0.0.1" || host == "::1";
  };
  return a.port == b.port && ((a.host == "localhost" && is_its_address(b.host)) ||
                              (b.host == "localhost" && is_its_address(a.host)));
}

}  // namespace

bool is_same_server(const Endpoint& a, const Endpoint& b) {
  if (a.is_unix() != b.is_unix()) return false;
  if (!a.is_unix()) return is_same_port(a, b);
  struct stat of_a = {}, of_b = {};
  if (stat(a.socket_path.c_str(), &of_a) != 0 || stat(b.socket_path.c_str(), &of_b) != 0) {
    return false;
  }
  return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace dlock
