#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lock/member.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

class RedisClient;

/// One link to a server: the client that has it, and how manieth it is of that client's.
struct LinkId {
  RedisClient* client = nullptr;
  int number = 0;
  bool operator==(const LinkId&) const = default;

  /// Whether anything can have gone out on it: it was opened.
  bool was_opened() const;
  bool is_open() const;
};

/// One run of a script of ours.
struct ScriptRun {
  std::string_view text;
  std::string_view sha1;
  std::vector<std::string> keys;  ///< all in one Cluster slot
  std::vector<std::string> arguments;
  bool by_text = false;   ///< sent whole, and not by its hash first
  std::string channel{};  ///< the whole name of one to listen to, from before the run; or empty
  /// Whether the script is told the word for its server: behind its second argument, and behind the
  /// name of a channel, where it has one at `channel_argument`.
  bool placed = false;
  /// Whether a member's script says at the end of its reply what the server's memory is worth.
  bool tells_standing = false;
  /// Unless null: the link on which the first copy of the request went out that has no answer yet.
  /// The transport notes it before it sends, and takes it back when the answer comes on that link.
  LinkId* unanswered = nullptr;
};

/// Where the channel is among the arguments of a script that is `placed`.
constexpr std::size_t channel_argument = 6;

/// The reply to a run of a script.
struct ScriptReply : Reply {
  bool sent_twice = false;  ///< it had to be sent again: the server may have done the first, too
  std::string server{};     ///< the word for the server that it ran on, where locks may move
  LinkId link{};            ///< on which the reply came
};

/// A message on a channel, and the link on which it came.
struct ChannelMessage {
  std::string text;
  LinkId link;
};

/// The way to the servers of one deployment: to one server or the master that Sentinel names
/// (RedisClient), to the nodes of a Cluster (ClusterRouter), or to a server of a quorum
/// (MemberServer). The stores send their requests through it, and need not know which it is. It
/// knows nothing of locks. Owned and used by one thread at a time.
class RedisTransport {
 public:
  using Visit = std::function<void(RedisClient& server)>;

  virtual ~RedisTransport() = default;

  /// Runs a script at the server of its keys, by its hash and, where the server does not know it,
  /// by its text. With a channel the reply comes together with a subscription to it. An error reply
  /// is returned.
  virtual ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) = 0;
  /// The replies, errors included, to plain requests about `keys`: about each the same number.
  virtual std::vector<Reply> read(const std::vector<std::string>& keys,
                                  const std::vector<Request>& requests,
                                  const CallOptions& call_options) = 0;
  /// The next message on `channel`, to which the last script has listened, or why there is none.
  virtual std::variant<ChannelMessage, Wake::Reason> next_message(const std::string& channel,
                                                                  Deadline until,
                                                                  int cancel_fd) = 0;
  /// Runs `visit` at every server that has keys, one after the other. `call_options` is of finding
  /// them.
  virtual void visit_all(const CallOptions& call_options, const Visit& visit) = 0;
  virtual bool is_cluster() const { return false; }
  /// As in Store.
  virtual std::vector<int> connections() const { return {}; }
  /// Whether anything can ever have been sent.
  virtual bool was_reached() const = 0;
  /// The deployment's name in what dlock tells people.
  virtual std::string name() const = 0;
  /// Of a server of a quorum, as of its last answer.
  virtual Standing standing() const { return {}; }
};

}  // namespace dlock
