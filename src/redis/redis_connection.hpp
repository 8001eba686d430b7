#pragma once

#include <compare>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/endpoint.hpp"
#include "base/wait.hpp"
#include "lock/store.hpp"
#include "net/stream.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// The address of a server, as another server announced it.
struct NodeAddress {
  std::string host;
  int port = 0;
  auto operator<=>(const NodeAddress&) const = default;
};

/// The server at `address`, with the login of `like`.
Endpoint endpoint_at(const Endpoint& like, const NodeAddress& address);

/// Checks the host and port that a sentinel or a Cluster node names. The text is foreign, so only a
/// possible host name or address and a port are accepted.
std::optional<NodeAddress> announced(std::string_view host, std::string_view port);

/// `redis+cluster://n1:6379,n2:6379`: the name of several servers that form one engine, for people.
/// `kind` is `cluster` or `sentinel`. Escaped, without credentials.
std::string deployment_name(const std::string& kind, const std::vector<Endpoint>& servers);

/// Finds the address of a connection's server; called for each new link, because it may have moved.
class EndpointResolver {
 public:
  virtual ~EndpointResolver() = default;

  /// Throws Error{unavailable} or {denied} if the address cannot be found now.
  virtual Endpoint find(const CallOptions& call_options) = 0;
  /// Whether the address may change: then a connection retries until its deadline.
  virtual bool may_move() const = 0;
  /// Called when the address from find() was not usable, or find() failed.
  virtual void note_failure() {}
  /// The name for messages; escaped, without credentials.
  virtual std::string name() const = 0;
};

/// One server at one address.
class FixedEndpoint final : public EndpointResolver {
 public:
  explicit FixedEndpoint(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  Endpoint find(const CallOptions&) override { return endpoint_; }
  bool may_move() const override { return false; }
  std::string name() const override { return endpoint_.name(); }

 private:
  Endpoint endpoint_;
};

/// Finds the master that sentinels name, by Redis' client guidelines. It asks the sentinels in
/// turn, each for its share of the time; the one that answered is asked first the next time. The
/// server itself must then confirm that it is a master
/// (https://redis.io/docs/latest/develop/reference/sentinel-clients/).
class SentinelResolver final : public EndpointResolver {
 public:
  /// `master` holds its login; the resolver fills in its address.
  SentinelResolver(std::vector<Endpoint> sentinels, std::string master_name, Endpoint master);

  Endpoint find(const CallOptions& call_options) override;
  bool may_move() const override { return true; }
  /// Moves another sentinel to the front: the first one may be cut off from the others and name a
  /// former master.
  void note_failure() override;
  std::string name() const override { return name_; }

 private:
  /// Returns the master.
  Endpoint ask(const Endpoint& sentinel, const CallOptions& call_options);
  /// Adds the sentinels in a reply to SENTINEL SENTINELS, since all of the URL's may be replaced
  /// while a lock is held. They have the login of `asked`.
  void learn(const Endpoint& asked, const Reply& reply);

  std::vector<Endpoint> sentinels_;  ///< the one that answered last is first
  std::string master_name_;
  Endpoint master_;
  std::string name_;
};

/// One command and its arguments, sent with lengths: no byte of an argument can end it.
using Request = std::vector<std::string>;

/// A message that was published on a channel of this connection; of a list, its first item.
struct Published {
  std::string channel;
  std::string payload;
};

/// The pauses between tries at a server that moves or comes back.
inline Backoff backoff_of_redis() { return {milliseconds(20), milliseconds(200)}; }

/// Called for each new link with its address and the time that connecting took.
using LinkListener = std::function<void(const Endpoint& to, std::chrono::nanoseconds took)>;

/// The requests that a connection sends on every new link, after the login.
struct Handshake {
  std::vector<Request> requests;
  bool only_a_master = false;  ///< refuse a link to a replica
};

/// One RESP2 connection. It is opened on first use and again after it broke, at the address that
/// its resolver finds. Requests go out together with the set-up (AUTH, SELECT, ROLE, CLIENT
/// SETNAME) in one write. Published messages wait in an inbox. Failures are Error{unavailable} or
/// {denied}, prefixed with the server's name.
class RedisConnection {
 public:
  /// If the address may move, the connection refuses a replica, whatever `handshake` says.
  explicit RedisConnection(std::unique_ptr<EndpointResolver> resolver, Handshake handshake = {},
                           LinkListener on_link = {})
      : resolver_(std::move(resolver)),
        handshake_(std::move(handshake)),
        on_link_(std::move(on_link)) {}

  /// Sends all commands in one write and returns one reply for each, errors included. If a
  /// cancellation interrupts it, the next exchange first reads and drops the replies still pending,
  /// so the server has executed what was sent before.
  std::vector<Reply> exchange(std::span<const Request> requests, const CallOptions& call_options);

  /// Opens a link unless one seems to work, sends nothing yet, and returns the link's address.
  const Endpoint& connect(const CallOptions& call_options);

  /// The next published message, or nothing at the deadline.
  std::optional<Published> next_message(const CallOptions& call_options);

  bool is_open() const { return link_.has_value(); }
  /// The file descriptor of the open link; -1 without one.
  int fd() const { return link_ ? link_->stream.fd() : -1; }
  /// Whether the last exchange was sent a second time, on a new link. The server may then have
  /// executed the first one, too.
  bool was_sent_twice() const { return was_sent_twice_; }
  /// How many links there have been; 0: nothing can ever have been sent.
  int links() const { return links_; }
  void close() { link_.reset(); }
  std::string name() const { return resolver_->name(); }
  /// The server's replies to the handshake on the open link, errors included; complete after a
  /// successful exchange.
  const std::vector<Reply>& answers() const { return link_->answers; }
  /// The open link's server answered the first question between these two moments.
  std::pair<Deadline, Deadline> answered_between() const { return {link_->asked, link_->answered}; }
  /// The TLS facts of the open link; nothing in plain text, or without a link.
  std::optional<TlsFacts> tls_facts() const {
    return link_ ? link_->stream.tls_facts() : std::nullopt;
  }

 private:
  struct Link {
    Link(Endpoint leads_to, Stream connected)
        : to(std::move(leads_to)), stream(std::move(connected)) {}
    Endpoint to;
    Stream stream;
    std::string unsent;  ///< the set-up, until it goes out with the first exchange
    ReplyReader reader;
    std::deque<Published> inbox;
    std::size_t pending_replies = 0;  ///< replies to an interrupted exchange
    std::deque<Request>
        setting_up;              ///< the set-up's requests; the first pending replies are theirs
    std::vector<Reply> answers;  ///< to the requests of the Handshake
    Deadline asked{};            ///< when the set-up went out
    Deadline answered{};         ///< when the first of the answers was read
  };

  std::vector<Reply> try_exchange(std::span<const Request> requests,
                                  const CallOptions& call_options);
  /// Runs `body`. Repeats it until it succeeds or the deadline if an old link broke, or if the
  /// server may move.
  template <typename Body>
  auto retry_until_deadline(const CallOptions& call_options, const Body& body);
  void open(const CallOptions& call_options);
  Reply next_reply(const CallOptions& call_options);
  /// Takes a published message into the inbox; false if `reply` is something else.
  bool take_message(Reply& reply);
  std::deque<Request> set_up(const Endpoint& endpoint, const CallOptions& call_options) const;
  /// Takes the replies and messages that arrived between exchanges. Throws on a reply to no
  /// request: from then on each reply would belong to another request.
  void check_in_step();
  /// Takes a reply to the set-up, or to an interrupted exchange.
  void take_pending(Reply reply);
  void check_set_up(const Reply& reply, const Request& request) const;

  std::unique_ptr<EndpointResolver> resolver_;
  const Handshake handshake_;
  const LinkListener on_link_;
  std::optional<Link> link_;
  int links_ = 0;
  bool was_sent_twice_ = false;
};

}  // namespace dlock
