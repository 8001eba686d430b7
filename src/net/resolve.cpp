#include "net/resolve.hpp"

#include <netdb.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

/// Shared by the caller and the resolving thread; the last of them frees it.
struct Lookup {
  Event done;
  std::mutex mutex;
  int fault = 0;                         // guarded by mutex
  std::vector<SocketAddress> addresses;  // guarded by mutex
};

int look_up(const std::string& host, int port, int flags, std::vector<SocketAddress>& found) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int fault = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (fault != 0) return fault;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
    found.push_back(address);
  }
  freeaddrinfo(list);
  return 0;
}

void look_up_aside(const std::shared_ptr<Lookup>& lookup, const std::string& host, int port) {
  std::thread([lookup, host, port] {
    std::vector<SocketAddress> found;
    // AI_ADDRCONFIG saves useless queries, but hides 127.0.0.1 if the machine has no other IPv4
    // address, for example before DHCP has answered or in a container that has only IPv6.
    int fault = look_up(host, port, host == "localhost" ? 0 : AI_ADDRCONFIG, found);
    if (fault == EAI_NONAME || fault == EAI_NODATA || fault == EAI_AGAIN) {
      fault = look_up(host, port, 0, found);
    }
    const std::lock_guard guard(lookup->mutex);
    lookup->fault = fault;
    lookup->addresses = std::move(found);
    lookup->done.raise();
  }).detach();
}

}  // namespace

std::vector<SocketAddress> resolve(const std::string& host, int port,
                                   const CallOptions& call_options) {
  std::vector<SocketAddress> found;
  if (look_up(host, port, AI_NUMERICHOST, found) == 0) return found;
  const auto lookup = std::make_shared<Lookup>();
  try {
    look_up_aside(lookup, host, port);
  } catch (const std::system_error& no_thread) {
    throw_unavailable("cannot look up " + escaped(host) + ": no thread: " + no_thread.what(),
                      Cause::not_looked_up);
  }
  pollfd fds[] = {{lookup->done.fd(), POLLIN, 0}, {call_options.cancel_fd, POLLIN, 0}};
  if (poll_until(fds, call_options.deadline) == 0) {
    throw_unavailable("looking up " + escaped(host) + " took too long", Cause::not_looked_up);
  }
  if (fds[0].revents == 0) throw_interrupted();
  const std::lock_guard guard(lookup->mutex);
  if (lookup->fault != 0) {
    throw_unavailable("cannot look up " + escaped(host) + ": " + gai_strerror(lookup->fault),
                      Cause::not_looked_up);
  }
  return lookup->addresses;
}

std::vector<std::string> resolve_in_digits(const std::string& host,
                                           const CallOptions& call_options) {
  constexpr int any_port = 1;
  std::vector<std::string> texts;
  for (const SocketAddress& each : resolve(host, any_port, call_options)) {
    std::array<char, NI_MAXHOST> text{};
    const auto* address = reinterpret_cast<const sockaddr*>(&each.storage);
    const int fault = getnameinfo(address, each.length, text.data(),
                                  static_cast<socklen_t>(text.size()), nullptr, 0, NI_NUMERICHOST);
    if (fault == 0) texts.emplace_back(text.data());
  }
  return texts;
}

}  // namespace dlock
