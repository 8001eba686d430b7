#include "base/same_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>

#include "base/fd.hpp"

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

/// No other address can be bound to.
template <typename Address>
bool is_own(const Address& address) {
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  const Fd socket(::socket(plain->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket && bind(socket.get(), plain, sizeof address) == 0;
}

bool is_on_this_host(const Endpoint& server) {
  if (server.is_unix()) return true;
  const std::string& host = server.host;
  char own[HOST_NAME_MAX + 1] = {};
  gethostname(own, HOST_NAME_MAX);
  if (host == "localhost" || host == own) return true;
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  if (inet_pton(AF_INET, host.c_str(), &ipv4.sin_addr) == 1) return is_own(ipv4);
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  return inet_pton(AF_INET6, host.c_str(), &ipv6.sin6_addr) == 1 && is_own(ipv6);
}

/// Of one host. A server has one socket, one port and one port for TLS, each of them at as many
/// addresses as it likes.
bool may_be_same_server(const Endpoint& a, const Endpoint& b) {
  if (a.is_unix() || b.is_unix()) return a.is_unix() != b.is_unix();
  return a.port == b.port || a.tls.has_value() != b.tls.has_value();
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

std::vector<bool> possible_doubles(const std::vector<Endpoint>& servers) {
  std::vector<bool> doubles(servers.size()), here;
  for (const Endpoint& each : servers) here.push_back(is_on_this_host(each));
  for (std::size_t i = 0; i < servers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Endpoint &a = servers[i], &b = servers[j];
      const bool one_name = !a.is_unix() && !b.is_unix() && a.host == b.host;
      const bool one_host = one_name || (here[i] && here[j]);
      if (one_host && may_be_same_server(a, b)) doubles[i] = doubles[j] = true;
    }
  }
  return doubles;
}

}  // namespace dlock
