#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lock/store.hpp"
#include "redis/connection.hpp"

namespace dlock {

/// What goes for all locks of a store.
struct RedisTerms {
  std::string prefix = "dlock:";  ///< of every key and channel
  int replicas = 0;               ///< how many must have a grant before it counts
  bool may_move = false;          ///< locks may come to live on another server
  bool cluster = false;           ///< the server is a node of a Cluster, and may redirect
  bool member = false;            ///< the server is one of a quorum; see RedisMember
  LinkListener on_link{};         ///< called by whichever thread uses the store
  AddressListener on_resolved{};  ///< likewise
};

/// One run of a script of ours.
struct ScriptRun {
  std::string_view text;
  std::string_view sha1;
  std::vector<std::string> keys;
  std::vector<std::string> arguments;
  std::string channel{};  ///< the whole name of one to listen to, from before the run; or empty
  /// Whether the script is told the word for its server: behind its second argument, and behind the
  /// last one where it is to listen.
  bool placed = false;
};

/// How requests and scripts reach one Redis or Valkey server, which may be the master of the moment
/// or a node of a Cluster, and how what it publishes is heard. It knows nothing of locks. Owned and
/// used by one thread at a time.
class RedisClient {
 public:
  /// `questions`: as Connection has them.
  RedisClient(std::unique_ptr<EndpointResolver> route, RedisTerms terms,
              std::vector<Request> questions = {});
  virtual ~RedisClient() = default;
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  /// Plain requests and their replies, errors included.
  std::vector<Reply> read(const std::vector<Request>& requests, const CallOptions& call_options);
  /// Runs a script, by its hash and, where the server does not know it, by its text. With a channel
  /// the reply comes together with a subscription to it. An error reply is returned.
  virtual Reply run_script(const ScriptRun& run, const CallOptions& call_options);
  /// Throws what an error reply means, `what` behind the server's name. On a node of a Cluster a
  /// redirection is thrown as Redirected.
  void throw_error(const Reply& reply, const Error& error, const std::string& message) const;

  /// Called by ClusterRouter: `request` goes out right before everything from here on, in the same
  /// write, and what was said to it last is kept; an empty one ends that.
  void precede_with(Request request);
  const std::optional<Reply>& said_before() const { return said_before_; }
  /// Whether the server may have done the last run before, as it had to be sent again.
  bool sent_twice() const { return sent_twice_; }
  /// Whether there is a link, as far as is known, and how many there have been.
  bool is_open() const { return connection_.is_open(); }
  void close() { connection_.close(); }
  int links() const { return connection_.links(); }
  /// Opens a link where there is none, and says where it leads.
  const Endpoint& connect(const CallOptions& call_options) {
    return connection_.connect(call_options);
  }
  /// What people call the server.
  std::string server_name() const { return connection_.name(); }

 protected:
  const Connection& connection() const { return connection_; }
  /// The next message on the channel that is listened to, or why there is none.
  std::variant<std::string, Wake::Reason> next_on(const std::string& channel, Deadline until,
                                                  int cancel_fd);
  /// The word for the server that a request goes to: a script tells those who queued up there from
  /// those who did elsewhere.
  std::string place(const CallOptions& call_options);
  /// Whether the server is no longer the master it was, and there may be another.
  bool is_deposed(const Reply& reply) const;
  /// Of the last run: the word for its server.
  const std::string& here() const { return here_; }

  const RedisTerms terms_;

 private:
  Reply run_once(const ScriptRun& run, bool by_text, const CallOptions& call_options);
  /// A connection that listens to a channel may not send plain commands.
  void stop_listening(const CallOptions& call_options);
  /// `requests` with the preceding one at `place`; its reply is kept and taken out.
  std::vector<Reply> exchange_preceded(std::vector<Request>& requests, std::ptrdiff_t place,
                                       const CallOptions& call_options);

  std::string here_;
  bool sent_twice_ = false;
  Connection connection_;
  std::string subscribed_;  ///< the whole name of the channel listened to now, if any
  Request preceding_;
  std::optional<Reply> said_before_;
};

/// Where the channel is among the arguments of a script that is `placed`.
constexpr std::ptrdiff_t channel_argument = 6;

/// Whether what others publish without end has kept a sleeper too long.
std::optional<Wake::Reason> end_of_sleep(Deadline until, int cancel_fd);

}  // namespace dlock
