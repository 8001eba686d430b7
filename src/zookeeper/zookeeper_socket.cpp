#include "zookeeper/zookeeper_socket.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.hpp"

namespace dlock {
namespace {

constexpr std::size_t one_read = 65'536;

/// 0: there is no such descriptor.
std::uint64_t inode_of(int fd) {
  struct stat status {};
  return fd >= 0 && fstat(fd, &status) == 0 ? status.st_ino : 0;
}

bool has_failed(ssize_t count) { return count < 0 && errno != EAGAIN && errno != EINTR; }

/// Sends the front of `bytes`, and cuts it off; false if it never can.
bool send_front(int fd, std::string& bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (has_failed(count)) return false;
    if (count < 0) return true;
    bytes.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

void ZooKeeperSocket::take_over(int fd, std::int64_t session) {
  leave();
  Fd server(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  int pair[2] = {-1, -1};
  const int made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
  Fd end(pair[0]);
  const Fd of_library(pair[1]);
  const bool is_behind = server && made == 0 && dup3(of_library.get(), fd, O_CLOEXEC) == fd;
  if (!is_behind) throw_errno("cannot use libzookeeper");
  server_ = std::move(server);
  end_ = std::move(end);
  library_ = inode_of(fd);
  check_.emplace(session);
  has_refused_reply_ = false;
}

void ZooKeeperSocket::listen(const std::string& path, ChildListener* listener) {
  if (check_) check_->listen(path, listener);
}

bool ZooKeeperSocket::is_behind(int fd) const { return library_ != 0 && inode_of(fd) == library_; }

void ZooKeeperSocket::follow(int fd) {
  if (library_ == 0) return;
  hear_library();
  send();
  if (!is_behind(fd)) leave();
}

void ZooKeeperSocket::give_back(int fd) {
  if (is_behind(fd)) {
    hear_library();
    send();
    if (!has_ended_ && requests_.empty()) dup3(server_.get(), fd, O_CLOEXEC);
  }
  leave();
}

void ZooKeeperSocket::leave() {
  server_.reset();
  end_.reset();
  library_ = 0;
  check_.reset();
  requests_.clear();
  replies_.clear();
  has_ended_ = has_told_end_ = false;
}

void ZooKeeperSocket::hear_library() {
  std::array<char, one_read> block;
  for (ssize_t count = 1; count > 0;) {
    count = recv(end_.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (count <= 0) return;
    const std::string_view bytes(block.data(), static_cast<std::size_t>(count));
    check_->note_request(bytes);
    if (!has_ended_) requests_ += bytes;
  }
}

void ZooKeeperSocket::send() {
  if (!has_ended_ && !send_front(server_.get(), requests_)) has_ended_ = true;
}

short ZooKeeperSocket::events() const {
  return static_cast<short>(POLLIN | (requests_.empty() ? 0 : POLLOUT));
}

void ZooKeeperSocket::exchange(short happened) {
  if (has_ended_) return;
  if ((happened & POLLOUT) != 0) send();
  if ((happened & (POLLIN | POLLERR | POLLHUP)) == 0) return;
  std::array<char, one_read> block;
  const ssize_t count = recv(server_.get(), block.data(), block.size(), MSG_DONTWAIT);
  if (count > 0) replies_ += check_->take({block.data(), static_cast<std::size_t>(count)});
  if (count == 0 || has_failed(count) || check_->is_broken()) has_ended_ = true;
  if (has_ended_) has_refused_reply_ = check_->is_broken();
}

bool ZooKeeperSocket::hand_on(int fd) {
  if (!send_front(end_.get(), replies_)) has_ended_ = true;
  if (has_ended_ && replies_.empty() && !std::exchange(has_told_end_, true)) {
    shutdown(end_.get(), SHUT_WR);
  }
  pollfd readable{fd, POLLIN, 0};
  return poll(&readable, 1, 0) > 0;
}

void ZooKeeperSocket::end() {
  replies_.clear();
  has_ended_ = true;
  if (server_) shutdown(server_.get(), SHUT_RDWR);
}

}  // namespace dlock
