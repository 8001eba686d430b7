#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lock/store.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

class RedisClient;

/// One link to a server: the client that has it, and its number among that client's links.
struct LinkId {
  RedisClient* client = nullptr;
  int number = 0;
  bool operator==(const LinkId&) const = default;

  /// Whether the link was opened, so that something may have gone out on it.
  bool was_opened() const;
  bool is_open() const;
};

/// One run of a Lua script.
struct ScriptRun {
  std::string_view text;
  std::string_view sha1;
  std::vector<std::string> keys;  ///< all in one Cluster slot
  std::vector<std::string> arguments;
  std::string channel{};  ///< full name of a channel to subscribe to before the run; or empty
  /// The index of the argument in which the client sends the id of the server, if locks may move.
  std::optional<std::size_t> server_argument{};
  /// If not null: receives the link on which the first unanswered copy of the request went out. The
  /// transport sets it before it sends, and clears it when the answer comes on that link.
  LinkId* unanswered = nullptr;
  /// Whether to send ASKING first, so that a Cluster node serves a key that is migrating to it
  /// (https://redis.io/docs/latest/commands/asking/).
  bool asking = false;
};

/// The reply to a run of a script.
struct ScriptReply : Reply {
  bool sent_twice = false;  ///< the server may have executed an earlier copy, too
  std::string server{};     ///< the id of the server that ran the script, if locks may move
  LinkId link{};            ///< on which the reply came
};

/// Access to the servers of one deployment: to one server or the master that Sentinel names
/// (RedisClient), or to the nodes of a Cluster (ClusterRouter). The stores do not know which of
/// them they use, and the transport knows nothing of locks. Owned and used by one thread at a
/// time.
class RedisTransport {
 public:
  using Visit = std::function<void(RedisClient& server)>;

  virtual ~RedisTransport() = default;

  /// Runs a script at the server of its keys, by its hash, or by its text if the server does not
  /// know it. With a channel, the reply comes together with a subscription to it. Returns error
  /// replies.
  virtual ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) = 0;
  /// The replies, errors included, to plain requests about `keys`: equally many for each key. A
  /// transport to one server needs no keys.
  virtual std::vector<Reply> read(const std::vector<std::string>& keys,
                                  const std::vector<Request>& requests,
                                  const CallOptions& call_options) = 0;
  /// The next message on `channel`, which the last script subscribed to, or the reason why there is
  /// none.
  virtual std::variant<std::string, Wake::Reason> next_message(const std::string& channel,
                                                               Deadline until, int cancel_fd) = 0;
  /// Runs `visit` at every server that has keys, one after the other. `call_options` bounds the
  /// search for the servers.
  virtual void visit_all(const CallOptions& call_options, const Visit& visit) = 0;
  virtual bool is_cluster() const { return false; }
  /// See Store.
  virtual std::vector<int> connections() const { return {}; }
  /// Whether this transport can ever have sent anything.
  virtual bool was_reached() const = 0;
  /// The deployment's name in messages to users.
  virtual std::string name() const = 0;
};

/// The options of a store, which hold for all its locks.
struct RedisStoreOptions {
  std::string prefix = "dlock:";  ///< of every key and channel
  int replicas = 0;               ///< how many must have a grant or renewal before it counts
  bool may_move = false;          ///< locks may move to another server
  bool member = false;            ///< the server is one of a quorum; see RedisMember
  LinkListener on_link{};         ///< called by whichever thread uses the store
};

/// Sends requests and scripts to one Redis or Valkey server, which may be the current master or a
/// Cluster node, and receives what it publishes. Owned and used by one thread at a time.
class RedisClient : public RedisTransport, private RedisConnection {
 public:
  using RedisConnection::answered_between, RedisConnection::answers;
  using RedisConnection::close, RedisConnection::connect, RedisConnection::is_open;
  using RedisConnection::links;

  RedisClient(EndpointResolver resolver, const RedisStoreOptions& options,
              Handshake handshake = {});
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) override;
  std::vector<Reply> read(const std::vector<std::string>& keys,
                          const std::vector<Request>& requests,
                          const CallOptions& call_options) override;
  std::variant<std::string, Wake::Reason> next_message(const std::string& channel, Deadline until,
                                                       int cancel_fd) override;
  void visit_all(const CallOptions&, const Visit& visit) override { visit(*this); }
  std::vector<int> connections() const override { return {fd()}; }
  bool was_reached() const override { return links() > 0; }
  std::string name() const override { return RedisConnection::name(); }

 private:
  /// Called when the replies to a read or a script have arrived; may throw Error.
  virtual void check_link() {}

  ScriptReply run_once(const ScriptRun& run, bool by_text, bool sent_before,
                       const CallOptions& call_options);
  /// The id of the server that a request goes to, if locks may move. The script compares it with
  /// that of the waiters, which may have queued up at another server.
  std::string server_id(const CallOptions& call_options);
  /// Whether the server is no longer the master. If so, closes the link, because the name may lead
  /// to another server by now.
  bool leave_if_deposed(const Reply& reply);

  const bool may_move_;
  std::string subscribed_;  ///< the whole name of the channel listened to now, if any
};

/// Calls `take` with the names of one server's keys, a page at a time, so that the server is never
/// blocked for long. A name may come twice (https://redis.io/docs/latest/commands/scan/).
/// `narrowed`: the arguments of SCAN after its cursor. All pages together have until the deadline
/// of `call_options`; each has at most silence_of_a_dead_server. Throws Error.
void scan(RedisClient& server, const Request& narrowed, const CallOptions& call_options,
          const std::function<void(std::vector<std::string> names)>& take);

inline bool LinkId::was_opened() const { return client != nullptr && client->links() >= number; }
inline bool LinkId::is_open() const {
  return client != nullptr && client->links() == number && client->is_open();
}

}  // namespace dlock
