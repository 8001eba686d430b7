#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"

struct _zhandle;

namespace dlock {

/// The session timeout of a client that asks for no lease.
constexpr milliseconds usual_session{30'000};

/// The session timeout for leases of `ttl`. The holds of a killed process should expire with its
/// lease, but the library needs some time to notice that a server does not answer.
constexpr milliseconds session_for(milliseconds ttl) {
  return std::clamp(ttl, milliseconds(4000), milliseconds(60'000));
}

/// The reply to a request about one znode.
struct ZooKeeperReply {
  int code = 0;  ///< one of zookeeper.h's ZOO_ERRORS
  std::string data{};
  std::vector<std::string> children{};
  std::int64_t czxid = 0;     ///< of the change that created the node
  std::int64_t mzxid = 0;     ///< of the last change of the node's data
  std::int64_t mtime_ms = 0;  ///< the time of that change, by the leader's clock
  std::int32_t version = 0;   ///< of the data: how often it was changed since the creation
  bool ok() const { return code == 0; }
};

/// One of several changes that are applied all or not at all.
struct ZooKeeperChange {
  enum class Kind { check, create, create_ephemeral, set, remove };
  Kind kind = Kind::check;
  std::string path;
  std::string data{};
  std::int32_t version = -1;  ///< that check, set and remove require; -1: any
};

/// A request; all but `multi` reply with the node's times, `get_children` with names, too.
struct ZooKeeperRequest {
  enum class Kind { get, get_and_watch, get_children, set, multi };
  Kind kind = Kind::get;
  std::string path{};
  std::string data{};
  std::vector<ZooKeeperChange> changes{};  ///< of `multi`
};

/// A session with the servers of one ZooKeeper, over the single-threaded client library. The first
/// request opens it. It moves to another server if one does not answer, and starts anew after it
/// expired. One thread uses it at a time; the library works only within its calls.
class ZooKeeperClient {
 public:
  /// `shown` names the servers in messages; `session` is the timeout to ask for.
  ZooKeeperClient(std::vector<Endpoint> servers, std::string shown, milliseconds session);
  ~ZooKeeperClient();
  ZooKeeperClient(const ZooKeeperClient&) = delete;
  ZooKeeperClient& operator=(const ZooKeeperClient&) = delete;

  /// Opens a session unless one is open. Throws Error{unavailable, interrupted}.
  void connect(const CallOptions& call_options);

  /// Sends all requests at once; the server executes them in this order. A reply that was lost with
  /// the connection has a code that is_lost() knows. Throws Error{unavailable} at the deadline,
  /// Error{interrupted}.
  std::vector<ZooKeeperReply> ask(const std::vector<ZooKeeperRequest>& requests,
                                  const CallOptions& call_options);

  /// Like ask(), but for requests that can be repeated safely: after a loss it asks again over
  /// another connection. `sent` is set to the time before the last try.
  std::vector<ZooKeeperReply> ask_until_answered(const std::vector<ZooKeeperRequest>& requests,
                                                 const CallOptions& call_options, Deadline& sent);

  /// Waits until a watched path has changed (true), or until `until` (false). Throws
  /// Error{unavailable} if the connection is lost, Error{interrupted}.
  bool await_change(const std::string& path, Deadline until, int cancel_fd);

  /// Ends the session, which removes its ephemeral nodes.
  void close();

  bool is_open() const;
  /// The id of the session; empty if there is none.
  std::string session_id() const;
  /// The session timeout that the server granted.
  milliseconds granted_session() const;
  const std::string& name() const { return shown_; }
  /// With a login, only its user may access the nodes that this client creates.
  bool has_login() const { return servers_.front().user.has_value(); }

  /// Throws the Error for a lost connection.
  [[noreturn]] void refuse_lost() const;

  /// Throws the Error for a reply code; `doing` is the action, as in "make the node /a".
  [[noreturn]] void refuse(int code, const std::string& doing) const;

 private:
  /// Resolves the servers' names, because libzookeeper would wait for the resolver without limit. A
  /// server that is not found keeps its addresses; throws the last error if none is found.
  void look_up(const CallOptions& call_options);
  void open(const CallOptions& call_options);
  void follow_servers(const CallOptions& call_options);
  /// Lets the library work until something happens, or `until`. False: `until` has passed.
  bool step(Deadline until, const CallOptions& call_options);
  void drop_connection();
  int state() const;

  std::vector<Endpoint> servers_;
  std::string shown_;
  std::vector<std::set<std::string>> addresses_;  ///< of each server: `ADDRESS:PORT`
  /// All addresses for libzookeeper, in an order that does not depend on the resolver.
  std::set<std::string> all_addresses_;
  Deadline looked_up_{};
  milliseconds session_;
  _zhandle* handle_ = nullptr;
  int fd_ = -1;  ///< the library's socket
  int failed_connects_ = 0;
  int refusals_ = 0;               ///< connections without a session, since the last session
  bool gave_up_ = false;           ///< the last connect() ran out of time
  bool reached_ = false;           ///< a server has taken a connection
  std::set<std::string> changed_;  ///< the watched paths that have changed
};

/// Whether a request got no reply, so that its change may have been applied.
bool is_lost(int code);

}  // namespace dlock
