#include "attach/release_socket.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

// A client sends "release TOKEN KEY" before it asks the engine, and waits for the answer. Then it
// sends "released TOKEN KEY" or "refused TOKEN KEY", or nothing if the engine did not answer. Each
// message has its own connection.
const std::string will_release = "release";
const std::string released = "released";
const std::string refused = "refused";
constexpr std::size_t longest_message = 4096;
/// A daemon that is stopped must not delay a release for longer.
constexpr timeval longest_wait{2, 0};
/// A client that is stopped must not delay the daemon for longer.
constexpr timeval time_to_speak{0, 100'000};

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

/// The address is in the abstract namespace, so it disappears with the process. /proc/net/unix
/// shows the address to all users, so it has only a 64-bit hash of the token's 128 random bits.
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

/// Sends a message to the daemon, if there is one. Returns a positive number if the daemon has
/// answered, a negative one if it did not answer in time or `waits` is false, and zero if it does
/// not keep the key, has closed the connection after the message, or is not there.
ssize_t tell_daemon(const std::string& word, const Token& token, const LockKey& key, bool waits) {
  const Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address = address_of(token);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &longest_wait, sizeof longest_wait);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &longest_wait, sizeof longest_wait);
  if (connect(fd.get(), address.get(), address.length) != 0) return 0;
  // After the end of the daemon any user may listen at its address.
  if (!is_same_user_or_root(fd.get()) && geteuid() != 0) return 0;
  const std::string message = word + " " + token.text + " " + key.text;
  if (send(fd.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0) return 0;
  char answer = 0;
  return waits ? recv(fd.get(), &answer, 1, 0) : -1;
}

}  // namespace

ReleaseSocket::ReleaseSocket(Token token)
    : token_(std::move(token)),
      listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const Address address = address_of(token_);
  if (!listener_ || bind(listener_.get(), address.get(), address.length) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0) {
    throw_errno("cannot listen for releases");
  }
}

void ReleaseSocket::serve(AttachedHolds& holds) {
  constexpr milliseconds pause_without_descriptor{200};
  shut_until_ = never;
  Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!client && errno != EAGAIN) shut_until_ = later(BootClock::now(), pause_without_descriptor);
  if (client && is_same_user_or_root(client.get())) hear(std::move(client), holds);
}

void ReleaseSocket::hear(Fd client, AttachedHolds& holds) {
  setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &time_to_speak, sizeof time_to_speak);
  char text[longest_message];
  const auto got = recv(client.get(), text, sizeof text, 0);
  std::string_view rest(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  const auto word = take_until(rest, ' ');
  if (take_until(rest, ' ') != token_.text) return;
  const LockKey key{std::string(rest)};
  if (word == refused) holds.not_released(key);
  if (word == will_release && holds.about_to_be_released(key)) {
    (void)!send(client.get(), "", 1, MSG_NOSIGNAL);
  }
  if (word != released) return;
  holds.released(key);
  if (holds.empty()) last_client_ = std::move(client);
}

bool is_attached(const Token& token) {
  const Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = address_of(token);
  return connect(fd.get(), address.get(), address.length) == 0 || errno == EAGAIN;
}

ReleaseNotice::ReleaseNotice(const Token& token, const LockKey& key)
    : token_(token), key_(key), noted_(tell_daemon(will_release, token, key, true)) {}

void ReleaseNotice::answered(bool yes) const {
  if (noted_ != 0) tell_daemon(yes ? released : refused, token_, key_, noted_ > 0);
}

}  // namespace dlock
