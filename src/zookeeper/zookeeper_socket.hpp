#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "zookeeper/zookeeper_reply_check.hpp"

namespace dlock {

/// Stands between libzookeeper and its server, so that the library reads checked replies only. The
/// library connects by itself; then its end of a pair of sockets gets the number of its socket, and
/// what either side sends passes through here, whenever the client lets the library work.
class ZooKeeperSocket {
 public:
  /// From now on it stands behind the library's socket `fd`, on which a session was asked for; see
  /// ZooKeeperReplyCheck for `session`. Throws Error{host_refused} if there are no descriptors
  /// left.
  void take_over(int fd, std::int64_t session);

  /// Who hears the children of `path`, asked for over this connection from now on; null: nobody.
  void listen(const std::string& path, ChildListener* listener);

  /// Whether it stands behind that one: the library may have closed it, and opened another with the
  /// same number.
  bool is_behind(int fd) const;

  /// Lets go of the server unless it stands behind `fd`; sends on what the library has said. To be
  /// called whenever the library has worked.
  void follow(int fd);

  /// Lets the library speak to the server itself, to end its session: it reads nothing any more,
  /// but waits for the reply, which nobody would pass on meanwhile.
  void give_back(int fd);

  /// What to poll for the server; -1 when it is gone.
  int server() const { return has_ended_ ? -1 : server_.get(); }
  short events() const;

  /// Sends to the server and hears it, as poll has told.
  void exchange(short happened);

  /// Hands the library as many replies as fit in, and the end after the last one; whether there is
  /// anything for it to read.
  bool hand_on(int fd);

  /// Whether there is something that hand_on() would bring.
  bool has_replies() const { return !replies_.empty() || (has_ended_ && !has_told_end_); }

  /// The library is to find its connection lost.
  void end();

  /// Whether this connection was given up because of what the server sent; until the next one.
  bool has_refused_reply() const { return has_refused_reply_; }

 private:
  void leave();
  void hear_library();
  void send();

  Fd server_;
  Fd end_;                     ///< the library has the other one of the pair
  std::uint64_t library_ = 0;  ///< the inode of that
  std::optional<ZooKeeperReplyCheck> check_;
  std::string requests_;  ///< not sent yet
  std::string replies_;   ///< not handed on yet
  bool has_ended_ = false;
  bool has_told_end_ = false;
  bool has_refused_reply_ = false;
};

}  // namespace dlock
