#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "redis/redis_transport.hpp"

namespace dlock {

/// The options of a store, which hold for all its locks.
struct RedisTerms {
  std::string prefix = "dlock:";  ///< of every key and channel
  int replicas = 0;               ///< how many must have a grant or renewal before it counts
  bool may_move = false;          ///< locks may move to another server
  bool member = false;            ///< the server is one of a quorum; see MemberServer
  LinkListener on_link{};         ///< called by whichever thread uses the store
};

/// Sends requests and scripts to one Redis or Valkey server, which may be the current master or a
/// Cluster node, and receives what it publishes. Owned and used by one thread at a time.
class RedisClient : public RedisTransport {
 public:
  RedisClient(std::unique_ptr<EndpointResolver> route, const RedisTerms& terms,
              LinkQuestions questions = {});
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) override;
  std::vector<Reply> read(const std::vector<std::string>& keys,
                          const std::vector<Request>& requests,
                          const CallOptions& call_options) override;
  std::variant<ChannelMessage, Wake::Reason> next_message(const std::string& channel,
                                                          Deadline until, int cancel_fd) override;
  void visit_all(const CallOptions& call_options, const Visit& visit) override;
  std::vector<int> connections() const override { return {connection_.fd()}; }
  bool was_reached() const override { return links() > 0; }
  std::string name() const override { return connection_.name(); }

  /// Whether to send ASKING first, so that a Cluster node serves a key that is migrating to it
  /// (https://redis.io/docs/latest/commands/asking/).
  enum class Asking { no, yes };
  /// Sends plain requests and returns their replies, errors included. ASKING applies only to the
  /// first.
  std::vector<Reply> read_here(const std::vector<Request>& requests,
                               const CallOptions& call_options, Asking asking = Asking::no);
  ScriptReply run_script_here(const ScriptRun& run, const CallOptions& call_options,
                              Asking asking = Asking::no);

  /// is_open(): whether there is a link, as far as is known. links(): how many there have been.
  bool is_open() const { return connection_.is_open(); }
  int links() const { return connection_.links(); }
  void close() { connection_.close(); }
  /// Opens a link if there is none, and returns its address.
  const Endpoint& connect(const CallOptions& call_options) {
    return connection_.connect(call_options);
  }
  /// The replies to the handshake's questions on the open link, once a request was answered on it.
  const std::vector<Reply>& answers() const { return connection_.answers(); }

 protected:
  const RedisConnection& connection() const { return connection_; }

 private:
  /// Called when the replies to a read or a script have arrived; may throw Error.
  virtual void check_link() {}

  ScriptReply run_once(const ScriptRun& run, bool by_text, bool sent_before, Asking asking,
                       const CallOptions& call_options);
  /// Sends `requests`, with ASKING inserted at `keyed` if `asking` says so.
  std::vector<Reply> exchange(const std::vector<Request>& requests, std::ptrdiff_t keyed,
                              Asking asking, const CallOptions& call_options,
                              LinkId* unanswered = nullptr);
  /// A connection that listens to a channel may not send plain commands.
  void stop_listening(const CallOptions& call_options);
  /// The id of the server that a request goes to. The script compares it with that of the waiters,
  /// which may have queued up at another server.
  std::string place(const CallOptions& call_options);
  /// Whether the server has ceased to be the master. Then this closes the link, because the name
  /// may lead to another server by now.
  bool leave_if_deposed(const Reply& reply);

  const bool may_move_;
  RedisConnection connection_;
  std::string subscribed_;  ///< the whole name of the channel listened to now, if any
};

inline bool LinkId::was_opened() const { return client != nullptr && client->links() >= number; }
inline bool LinkId::is_open() const {
  return client != nullptr && client->links() == number && client->is_open();
}

}  // namespace dlock
