#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "zookeeper/zookeeper_addresses.hpp"

struct _zhandle;

namespace dlock {

struct ZooKeeperBatch;
struct ZooKeeperWatches;

/// What a request on a node is replied.
struct ZooKeeperReply {
  int code = 0;  ///< one of zookeeper.h's ZOO_ERRORS
  std::string data;
  std::vector<std::string> children;
  std::int64_t czxid = 0;     ///< of the change that made the node
  std::int64_t mzxid = 0;     ///< of the last change of the node's data
  std::int64_t mtime_ms = 0;  ///< when that was, by the leader's clock
  std::int32_t version = 0;   ///< of the data: how often it was changed since the node was made
  bool ok() const { return code == 0; }
  static ZooKeeperReply of(int code) {
    ZooKeeperReply reply;
    reply.code = code;
    return reply;
  }
};

/// One of several changes that count all or not at all.
struct ZooKeeperChange {
  enum class Kind { check, create, create_ephemeral, set, remove };
  Kind kind = Kind::check;
  std::string path;
  std::string data{};
  std::int32_t version = -1;  ///< of check, set and remove: only at this one; -1: at any
};

/// A request; all but `create` and `multi` reply with the node's times, `get_children` with names,
/// too.
struct ZooKeeperRequest {
  enum class Kind { get, get_and_watch, get_children, set, create, multi };
  Kind kind = Kind::get;
  std::string path{};
  std::string data{};
  std::vector<ZooKeeperChange> changes{};  ///< of `multi`
};

/// Error{unavailable}: the replies to requests that were sent at once have more bytes than dlock
/// takes.
class AnswersTooLarge final : public Error {
 public:
  using Error::Error;
};

/// A session with the servers of one ZooKeeper, over the single-threaded client library. It is
/// opened by the first request, moves to another server if one does not answer, and begins anew if
/// it has expired. One thread uses it at a time; the library works only within its calls.
class ZooKeeperClient {
 public:
  /// `shown` names them for people; `session` is the timeout to ask for.
  ZooKeeperClient(std::vector<Endpoint> servers, std::string shown, milliseconds session);
  ~ZooKeeperClient();
  ZooKeeperClient(const ZooKeeperClient&) = delete;
  ZooKeeperClient& operator=(const ZooKeeperClient&) = delete;

  /// Opens a session unless there is one. Throws Error{unavailable, interrupted}.
  void connect(const CallOptions& call_options);

  /// Sends all requests at once; the server takes them in their order. A reply that did not come
  /// because the connection was lost has a code that is_lost() knows. Throws Error{unavailable} at
  /// the deadline, AnswersTooLarge, Error{interrupted}.
  std::vector<ZooKeeperReply> ask(const std::vector<ZooKeeperRequest>& requests,
                                  const CallOptions& call_options);

  /// The same for requests that change nothing if they are repeated: asks again over another
  /// connection. `sent` is set to the time before the last try.
  std::vector<ZooKeeperReply> ask_until_answered(const std::vector<ZooKeeperRequest>& requests,
                                                 const CallOptions& call_options, Deadline& sent);

  /// Waits until a watched path has changed (true) or `until` (false). Throws Error{unavailable} if
  /// the connection is lost, Error{interrupted}.
  bool await_change(const std::string& path, Deadline until, int cancel_fd);

  /// Ends the session; nodes that last as long as it does are removed.
  void close();

  bool is_open() const;
  /// Names the session; empty: there is none.
  std::string session_id() const;
  /// How many sessions there have been.
  int session_count() const { return sessions_; }
  /// The session timeout that the server granted.
  milliseconds granted_session() const;
  const std::string& name() const { return shown_; }
  /// The nodes that it makes are for its user alone.
  bool has_login() const { return servers_.front().user.has_value(); }

  /// Throws that a connection was lost.
  [[noreturn]] void refuse_lost() const;

  /// Throws what a code means for `doing`, as "make the node /a".
  [[noreturn]] void refuse(int code, const std::string& doing) const;

 private:
  void open(const CallOptions& call_options);
  void follow_servers(const CallOptions& call_options);
  /// Lets the library work until something happens, or `until`. False: until has passed.
  bool step(Deadline until, const CallOptions& call_options);
  void submit(const ZooKeeperRequest& request, const std::shared_ptr<ZooKeeperBatch>& batch,
              std::size_t index);
  void submit_multi(const ZooKeeperRequest& request, const std::shared_ptr<ZooKeeperBatch>& batch,
                    std::size_t index);
  void drop_connection();
  int state() const;

  std::vector<Endpoint> servers_;
  std::string shown_;
  ZooKeeperAddresses addresses_;
  milliseconds session_;
  _zhandle* handle_ = nullptr;
  int fd_ = -1;  ///< the library's socket
  int sessions_ = 0;
  bool counted_ = false;  ///< the session of this handle
  int failed_connects_ = 0;
  int refusals_ = 0;      ///< connections that brought no session, since the last one
  bool gave_up_ = false;  ///< the last connect() did, for want of time
  bool reached_ = false;  ///< a server has taken a connection
  std::shared_ptr<ZooKeeperWatches> watches_;
};

/// The codes of requests that had no reply, after which a change may have counted.
bool is_lost(int code);

}  // namespace dlock
