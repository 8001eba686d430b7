#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/backoff.hpp"
#include "net/stream.hpp"
#include "redis/node_address.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// One command and its arguments, sent with lengths: no byte of an argument can end it.
using Request = std::vector<std::string>;

/// A message that was published on a channel this connection listens to; of a list its first item.
struct Published {
  std::string channel;
  std::string payload;
};

/// The pauses between tries at a server that moves or comes back.
inline Backoff pauses_of_redis() { return {milliseconds(20), milliseconds(200)}; }

/// Told of each new link: where it leads to, and how long it took to get there.
using LinkListener = std::function<void(const Endpoint& to, std::chrono::nanoseconds took)>;

/// The requests that a connection sends on every new link, behind the login.
struct LinkQuestions {
  std::vector<Request> requests;
  bool only_a_master = false;  ///< trouble at a link that leads to a replica
};

/// One RESP2 connection, opened when it is first needed and again after it broke, to wherever its
/// route says. Requests go out together with the set-up (AUTH, SELECT, ROLE, CLIENT SETNAME) in one
/// write. What was published to us waits in an inbox. Trouble is Error{unavailable} or {denied},
/// prefixed with the server's name.
class RedisConnection {
 public:
  /// A connection whose route may move refuses a replica, whatever `questions` says.
  explicit RedisConnection(std::unique_ptr<EndpointResolver> route, LinkQuestions questions = {},
                           LinkListener on_link = {})
      : route_(std::move(route)), questions_(std::move(questions)), on_link_(std::move(on_link)) {}

  /// Sends all commands in one write and returns one reply for each, errors included. If an
  /// interrupt comes meanwhile, the replies still owed are read and dropped before the next
  /// exchange, so what was sent is done by the server before what comes next.
  std::vector<Reply> exchange(std::span<const Request> requests, const CallOptions& call_options);

  /// Opens a link where there is none that is known to work, sending nothing yet, and says where it
  /// leads.
  const Endpoint& connect(const CallOptions& call_options);

  /// The next published message, or nothing at the deadline.
  std::optional<Published> next_message(const CallOptions& call_options);

  bool is_open() const { return link_.has_value(); }
  /// Of the open link; -1 without one.
  int fd() const { return link_ ? link_->stream.fd() : -1; }
  /// Whether the last exchange had to be sent a second time, on a new link: then the server may
  /// have done the first one, too.
  bool was_sent_twice() const { return was_sent_twice_; }
  /// How many links there have been; 0: nothing can ever have been sent.
  int links() const { return links_; }
  void close() { link_.reset(); }
  std::string name() const { return route_->name(); }
  /// The replies of the open link's server to the questions, errors included; all of it once an
  /// exchange has succeeded.
  const std::vector<Reply>& answers() const { return link_->answers; }
  /// Between these moments the open link's server answered the first question.
  std::pair<Deadline, Deadline> answered_between() const { return {link_->asked, link_->answered}; }
  /// Of the open link; nothing in plain text, or without a link.
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
    std::size_t owed = 0;            ///< replies to an interrupted exchange
    std::deque<Request> setting_up;  ///< of the owed replies the first are to these, and matter
    std::vector<Reply> answers;      ///< to the questions among them
    Deadline asked{};                ///< when the set-up went out
    Deadline answered{};             ///< when the first of the answers was read
  };

  std::vector<Reply> try_exchange(std::span<const Request> requests,
                                  const CallOptions& call_options);
  /// Runs `body`; where the server may move, again until it succeeds or the time is up.
  template <typename Body>
  auto persist(const CallOptions& call_options, const Body& body);
  void open(const CallOptions& call_options);
  Reply next_reply(const CallOptions& call_options);
  /// Takes a published message into the inbox; false if `reply` is something else.
  bool take_message(Reply& reply);
  std::deque<Request> set_up(const Endpoint& endpoint, const CallOptions& call_options) const;
  /// Takes what is there that no exchange waits for. Throws if replies are there that nobody asked
  /// for: from here on each would answer another.
  void check_in_step();
  void take_between(Reply reply);
  /// A reply to the set-up, or to an exchange that was interrupted.
  void take_owed(Reply reply);
  void check_set_up(const Reply& reply, const Request& request) const;

  std::unique_ptr<EndpointResolver> route_;
  const LinkQuestions questions_;
  const LinkListener on_link_;
  std::optional<Link> link_;
  int links_ = 0;
  bool was_sent_twice_ = false;
};

}  // namespace dlock
