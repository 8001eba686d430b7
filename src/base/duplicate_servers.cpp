#include "base/duplicate_servers.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace dlock {
namespace {

/// `host` in its usual digits; nothing where it is a name.
std::optional<std::string> address_in(const std::string& host) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  for (const int family : {AF_INET, AF_INET6}) {
    in6_addr address{};
    if (inet_pton(family, host.c_str(), &address) != 1) continue;
    return inet_ntop(family, &address, text.data(), text.size());
  }
  return std::nullopt;
}

/// No other address can be bound to.
template <typename Address>
bool is_bound_here(const Address& address) {
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  const Fd socket(::socket(plain->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket && bind(socket.get(), plain, sizeof address) == 0;
}

bool is_own_address(const std::string& address) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &ipv4.sin_addr) == 1) return is_bound_here(ipv4);
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  return inet_pton(AF_INET6, address.c_str(), &ipv6.sin6_addr) == 1 && is_bound_here(ipv6);
}

bool is_on_this_host(const Endpoint& server, const std::set<std::string>& addresses) {
  if (server.is_unix() || server.host == "localhost") return true;
  char own[HOST_NAME_MAX + 1] = {};
  gethostname(own, HOST_NAME_MAX);
  return server.host == own || std::any_of(addresses.begin(), addresses.end(), is_own_address);
}

/// Of one host. A server has one socket, one port and one port for TLS, each of them at as many
/// addresses as it likes.
bool may_be_same_server(const Endpoint& a, const Endpoint& b) {
  if (a.is_unix() || b.is_unix()) return a.is_unix() != b.is_unix();
  return a.port == b.port || a.tls.has_value() != b.tls.has_value();
}

bool meet(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& each) { return b.contains(each); });
}

const std::string& asked_for(const Endpoint& server) {
  return server.tls->server_name.empty() ? server.host : server.tls->server_name;
}

bool is_told_apart(const Endpoint& a, const Endpoint& b) {
  return a.tls && b.tls && asked_for(a) != asked_for(b);
}

}  // namespace

DuplicateServers::DuplicateServers(std::vector<Endpoint> servers)
    : servers_(std::move(servers)), addresses_(servers_.size()) {
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].is_unix()) continue;
    if (const auto address = address_in(servers_[i].host)) {
      addresses_[i] = {*address};
      continue;
    }
    for (std::size_t j = 0; j < servers_.size(); ++j) {
      if (i != j && may_be_same_server(servers_[i], servers_[j])) awaited_.insert(i);
    }
  }
  if (awaited_.empty()) all_known_.raise();
}

void DuplicateServers::resolved(std::size_t server, std::vector<std::string> addresses) {
  const std::lock_guard guard(mutex_);
  addresses_[server].insert(addresses.begin(), addresses.end());
  awaited_.erase(server);
  if (awaited_.empty()) all_known_.raise();
}

void DuplicateServers::await_addresses(Deadline until, int cancel_fd) const {
  pollfd fds[] = {{all_known_.fd(), POLLIN, 0}, {cancel_fd, POLLIN, 0}};
  const bool interrupted = poll_until(fds, until) > 0 && fds[0].revents == 0;
  if (interrupted) throw_interrupted();
}

std::vector<DuplicateServers::Addresses> DuplicateServers::addresses() const {
  const std::lock_guard guard(mutex_);
  return addresses_;
}

std::optional<std::pair<std::size_t, std::size_t>> DuplicateServers::shown() const {
  const auto addresses = this->addresses();
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Endpoint &a = servers_[j], &b = servers_[i];
      if (a.port != b.port || is_told_apart(a, b)) continue;
      if (meet(addresses[j], addresses[i])) return std::pair(j, i);
    }
  }
  return std::nullopt;
}

std::vector<bool> DuplicateServers::possible() const {
  const auto addresses = this->addresses();
  std::vector<bool> doubles(servers_.size()), here;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    here.push_back(is_on_this_host(servers_[i], addresses[i]));
    for (std::size_t j = 0; j < i; ++j) {
      const Endpoint &a = servers_[i], &b = servers_[j];
      const bool one_name = !a.is_unix() && !b.is_unix() && a.host == b.host;
      const bool one_host = one_name || (here[i] && here[j]) || meet(addresses[i], addresses[j]);
      if (one_host && may_be_same_server(a, b)) doubles[i] = doubles[j] = true;
    }
  }
  return doubles;
}

}  // namespace dlock
