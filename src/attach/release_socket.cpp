#include "attach/release_socket.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

// A client sends "release TOKEN KEY" and gets the answer "noted". Then it sends "released" or
// "refused", or closes the connection.
const std::string request_start = "release ";
const std::string noted = "noted";
const std::string released = "released";
const std::string refused = "refused";
constexpr std::size_t longest_message = 4096;
constexpr std::size_t most_clients = 16;
/// A daemon that is stopped must not delay a release for longer.
constexpr timeval longest_wait{2, 0};

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

/// The address is in the abstract namespace, so it ends with the process. /proc/net/unix shows it
/// to all users, so it reveals only half as many bits as are random in the token.
Address address_of(const Token& token) {
  const std::string text = "dlock-" + std::to_string(fnv1a(token.text));
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, text.data(), text.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

bool is_same_user_or_root(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

bool say(int fd, const std::string& text) {
  return send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

}  // namespace

ReleaseSocket::ReleaseSocket(Token token)
    : token_(std::move(token)),
      listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const Address address = address_of(token_);
  if (!listener_ || bind(listener_.get(), address.get(), address.length) != 0 ||
      listen(listener_.get(), most_clients) != 0) {
    throw_errno("cannot listen for releases");
  }
}

void ReleaseSocket::add_to(std::vector<pollfd>& fds) const {
  const bool shut = shut_until_ || clients_.size() == most_clients;
  fds.push_back({shut ? -1 : listener_.get(), POLLIN, 0});
  for (const ReleaseClient& client : clients_) fds.push_back({client.fd.get(), POLLIN, 0});
}

void ReleaseSocket::serve(AttachedHolds& holds) {
  accept_clients();
  std::erase_if(clients_, [&](ReleaseClient& client) {
    // The client that has released the last key waits for the end of this process.
    return !hear(client, holds) && !holds.empty();
  });
}

void ReleaseSocket::accept_clients() {
  constexpr milliseconds pause_without_descriptor{200};
  shut_until_.reset();
  // The number is limited because another user may connect without end.
  for (std::size_t i = clients_.size(); i < most_clients; ++i) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno != EAGAIN) shut_until_ = later(BootClock::now(), pause_without_descriptor);
      return;
    }
    if (is_same_user_or_root(fd.get())) clients_.push_back({std::move(fd), std::nullopt});
  }
}

bool ReleaseSocket::hear(ReleaseClient& client, AttachedHolds& holds) const {
  char text[longest_message];
  const auto got = recv(client.fd.get(), text, sizeof text, 0);
  if (got < 0 && errno == EAGAIN) return true;
  const std::string message(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  if (client.releases) {
    holds.release_ended(*client.releases, message == released  ? ReleaseEnd::released
                                          : message == refused ? ReleaseEnd::refused
                                                               : ReleaseEnd::unknown);
    return false;
  }
  const std::string start = request_start + token_.text + " ";
  if (!message.starts_with(start)) return false;
  const LockKey key{message.substr(start.size())};
  if (!holds.about_to_be_released(key)) return false;
  client.releases = key;
  say(client.fd.get(), noted);
  return true;
}

bool is_attached(const Token& token) {
  const Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = address_of(token);
  return connect(fd.get(), address.get(), address.length) == 0 || errno == EAGAIN;
}

ReleaseNotice::ReleaseNotice(const Token& token, const LockKey& key) {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address = address_of(token);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &longest_wait, sizeof longest_wait);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &longest_wait, sizeof longest_wait);
  if (connect(fd.get(), address.get(), address.length) != 0) return;
  // After the end of the daemon any user may listen at its address.
  if (!is_same_user_or_root(fd.get()) && geteuid() != 0) return;
  if (!say(fd.get(), request_start + token.text + " " + key.text)) return;
  char answer[longest_message];
  const auto got = recv(fd.get(), answer, sizeof answer, 0);
  if (got == 0) return;
  noted_ = got > 0;
  daemon_ = std::move(fd);
}

void ReleaseNotice::answered(bool yes) const {
  if (!daemon_ || !say(daemon_.get(), yes ? released : refused) || !noted_) return;
  char end = 0;
  [[maybe_unused]] const auto got = recv(daemon_.get(), &end, 1, 0);
}

}  // namespace dlock
