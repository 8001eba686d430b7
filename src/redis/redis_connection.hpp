#pragma once

#include <compare>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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

/// The address that a sentinel or a Cluster node names; nothing without a host or a valid port.
std::optional<NodeAddress> announced(std::string_view host, std::string_view port);

/// `redis+cluster://n1:6379,n2:6379`: the name of several servers that form one engine, for people.
/// `kind` is `cluster` or `sentinel`. Escaped, without credentials.
std::string deployment_name(const std::string& kind, const std::vector<Endpoint>& servers,
                            bool tls);

/// Finds the server of a connection, anew for each link: the one at a fixed address, or the master
/// that sentinels name, by Redis' client guidelines. It asks the sentinels in turn, each for its
/// share of the time; the one that answered is asked first the next time. The server itself must
/// then confirm that it is a master
/// (https://redis.io/docs/latest/develop/reference/sentinel-clients/).
class EndpointResolver {
 public:
  /// One server at one address.
  EndpointResolver(const Endpoint& server)  // NOLINT(google-explicit-constructor)
      : server_(server), name_(server.name()) {}
  /// `master` holds the login of the master; find() fills in its address.
  EndpointResolver(std::vector<Endpoint> sentinels, std::string master_name, Endpoint master);

  /// Throws Error{unavailable} or {denied} if the address cannot be found now.
  Endpoint find(const CallOptions& call_options);
  /// Whether the address may change: then a connection retries until its deadline.
  bool may_move() const { return !sentinels_.empty(); }
  /// Called when the address from find() was not usable, or find() failed. Moves another sentinel
  /// to the front: the first one may be cut off from the others and name a former master.
  void note_failure();
  /// The name for messages; escaped, without credentials.
  const std::string& name() const { return name_; }

 private:
  /// Asks one sentinel, and returns the master that it names.
  Endpoint ask(const Endpoint& sentinel, const CallOptions& call_options);

  std::vector<Endpoint> sentinels_;  ///< the one that answered last is first
  std::string master_name_;
  Endpoint server_;
  std::string name_;
};

/// One command and its arguments, sent with lengths: no byte of an argument can end it.
using Request = std::vector<std::string>;

/// A message from a channel of this connection; if it is a list, the payload is its first item.
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
  explicit RedisConnection(EndpointResolver resolver, Handshake handshake = {},
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

  /// The next message, or the reason why there is none.
  std::variant<Published, Wake::Reason> next_message(Deadline until, int cancel_fd);

  bool is_open() const { return link_.has_value(); }
  /// The file descriptor of the open link; -1 without one.
  int fd() const { return link_ ? link_->stream.fd() : -1; }
  /// Whether the connection sent the last exchange a second time, on a new link. The server may
  /// then have executed the first copy, too.
  bool was_sent_twice() const { return was_sent_twice_; }
  /// How many links there have been; 0: nothing can ever have been sent.
  int links() const { return links_; }
  void close() { link_.reset(); }
  std::string name() const { return resolver_.name(); }
  /// The server's replies to the handshake on the open link, errors included; complete after a
  /// successful exchange.
  const std::vector<Reply>& answers() const { return link_->answers; }
  /// The times between which the open link's server answered the first request of the Handshake.
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
    std::size_t pending_replies = 0;  ///< to the set-up or to an exchange, not read yet
    std::deque<Request>
        setting_up;              ///< the set-up's requests; the first pending replies are theirs
    std::vector<Reply> answers;  ///< to the requests of the Handshake
    Deadline asked{};            ///< when the set-up went out
    Deadline answered{};         ///< when the first of the answers was read
  };

  std::vector<Reply> try_exchange(std::span<const Request> requests,
                                  const CallOptions& call_options);
  /// Runs `body`. If it fails because an old link broke, or if the server may move, repeats it
  /// until the deadline.
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

  EndpointResolver resolver_;
  const Handshake handshake_;
  const LinkListener on_link_;
  std::optional<Link> link_;
  int links_ = 0;
  bool was_sent_twice_ = false;
};

}  // namespace dlock
