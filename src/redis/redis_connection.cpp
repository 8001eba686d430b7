#include "redis/redis_connection.hpp"

#include <algorithm>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "redis/reply.hpp"

namespace dlock {

Endpoint endpoint_at(const Endpoint& like, const NodeAddress& address) {
  Endpoint endpoint = like;
  endpoint.host = address.host;
  endpoint.port = address.port;
  return endpoint;
}

std::string deployment_name(const std::string& kind, const std::vector<Endpoint>& servers,
                            bool tls) {
  const std::string scheme = tls ? "rediss" : "redis";
  return scheme + "+" + kind + "://" +
         joined(servers, ",", [](const Endpoint& each) { return each.address(); });
}

std::optional<NodeAddress> announced(std::string_view host, std::string_view port) {
  const auto number = parse_number(port, 1, 65535);
  if (host.empty() || !number) return std::nullopt;
  return NodeAddress{std::string(host), static_cast<int>(*number)};
}

namespace {

/// Appends the request in RESP (https://redis.io/docs/latest/develop/reference/protocol-spec/).
void append_formatted(std::string& out, const Request& request) {
  out += "*" + std::to_string(request.size()) + "\r\n";
  for (const std::string& argument : request) {
    out += "$" + std::to_string(argument.size()) + "\r\n" + argument + "\r\n";
  }
}

/// Runs `body`, and rethrows its errors with `name` in front, if there is one.
template <typename Body>
decltype(auto) named(const std::string& name, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw error.reworded((name.empty() ? "" : name + ": ") + error.what());
  }
}

void look_at_the_clock(const CallOptions& call_options) {
  if (readable(call_options.cancel_fd)) throw_interrupted();
  if (call_options.deadline != never && BootClock::now() >= call_options.deadline) {
    throw_unavailable("no whole answer in time");
  }
}

/// Checks the reply to ROLE (https://redis.io/docs/latest/commands/role/). If the server
/// `may_move`, the master may soon be elsewhere; otherwise the user named a replica by mistake.
void check_role(const Endpoint& server, const Reply& reply, bool may_move) {
  const std::string role = reply.is_array(1) ? reply.items[0].text : "";
  if (role == "master") return;
  if (role == "slave" && !may_move) {
    const bool told = reply.is_array(3);
    const std::string port = told ? std::to_string(reply.items[2].integer) : "";
    throw Error(ErrorKind::usage, "it is a replica" +
                                      (told ? " of " + address_of(reply.items[1].text, port) : "") +
                                      ": name independent servers");
  }
  std::string is = " does not say that it is a master";
  if (role == "slave") is = " is a replica, not the master it was named as";
  if (role == "sentinel") is = " is a sentinel, not the master it was named as";
  throw_unavailable(server.address() + is, role == "slave" ? Cause::read_only : Cause::other_reply);
}

}  // namespace

template <typename Body>
auto RedisConnection::retry_until_deadline(const CallOptions& call_options, const Body& body) {
  Backoff backoff = backoff_of_redis();
  while (true) {
    // A broken old link says nothing about the server yet.
    const bool old_link = is_open();
    try {
      return body();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      close();
      if (!old_link) resolver_.note_failure();
      const bool worth_it = old_link || resolver_.may_move();
      const bool in_time = old_link ? left_until(call_options.deadline) > milliseconds(0)
                                    : backoff.fits(call_options.deadline);
      if (!worth_it || error.kind() != ErrorKind::unavailable || !in_time) throw;
    }
    if (!old_link) pause(backoff.next(), call_options);
  }
}

const Endpoint& RedisConnection::connect(const CallOptions& call_options) {
  return named(resolver_.name(), [&]() -> const Endpoint& {
    // A server closes idle connections, and all connections when it restarts.
    if (is_open() && link_->stream.has_ended()) close();
    retry_until_deadline(call_options, [&] {
      if (!is_open()) open(call_options);
    });
    return link_->to;
  });
}

std::vector<Reply> RedisConnection::exchange(std::span<const Request> requests,
                                             const CallOptions& call_options) {
  return named(resolver_.name(), [&] {
    if (is_open() && link_->stream.has_ended()) close();
    was_sent_twice_ = false;
    bool sent = false;
    return retry_until_deadline(call_options, [&] {
      was_sent_twice_ = sent;
      if (!is_open()) open(call_options);
      sent = true;
      return try_exchange(requests, call_options);
    });
  });
}

std::vector<Reply> RedisConnection::try_exchange(std::span<const Request> requests,
                                                 const CallOptions& call_options) {
  check_in_step();
  std::string bytes = std::exchange(link_->unsent, "");
  if (!bytes.empty()) link_->asked = BootClock::now();
  for (const Request& request : requests) append_formatted(bytes, request);
  try {
    link_->stream.send(bytes, call_options);
  } catch (const Error&) {
    close();  // a part may have gone out: no other request can follow
    throw;
  }
  if (call_options.sent != nullptr) call_options.sent->raise();
  link_->pending_replies += requests.size();
  while (link_->pending_replies > requests.size()) take_pending(next_reply(call_options));
  std::vector<Reply> replies;
  for (std::size_t i = 0; i < requests.size(); ++i) replies.push_back(next_reply(call_options));
  return replies;
}

void RedisConnection::open(const CallOptions& call_options) {
  if (readable(call_options.cancel_fd)) throw_interrupted();
  const auto begun = BootClock::now();
  Endpoint endpoint = resolver_.find(call_options);
  // The server at the named address may be dead, and the name may soon lead elsewhere.
  constexpr int tries = 3;
  const auto left = left_until(call_options.deadline) / (resolver_.may_move() ? tries : 1);
  const auto until = std::min(call_options.deadline, later(BootClock::now(), left));
  auto setting_up = set_up(endpoint, call_options);
  Stream stream = named(resolver_.may_move() ? endpoint.address() : "", [&] {
    return Stream::connect(endpoint, {until, call_options.cancel_fd});
  });
  link_.emplace(std::move(endpoint), std::move(stream));
  ++links_;
  link_->setting_up = std::move(setting_up);
  link_->pending_replies = link_->setting_up.size();
  for (const Request& request : link_->setting_up) append_formatted(link_->unsent, request);
  if (on_link_) on_link_(link_->to, BootClock::now() - begun);
}

void RedisConnection::take_pending(Reply reply) {
  if (link_->setting_up.empty()) return;
  const Request request = std::move(link_->setting_up.front());
  link_->setting_up.pop_front();
  if (link_->setting_up.size() < handshake_.requests.size()) {
    if (link_->answers.empty()) link_->answered = BootClock::now();
    link_->answers.push_back(std::move(reply));
  } else {
    check_set_up(reply, request);
  }
}

void RedisConnection::check_in_step() {
  while (auto reply = link_->reader.next()) {
    if (take_message(*reply)) continue;
    if (link_->pending_replies == 0) {
      throw_unavailable("it sent a reply nobody asked for");
    }
    --link_->pending_replies;
    take_pending(std::move(*reply));
  }
}

bool RedisConnection::take_message(Reply& reply) {
  if (!reply.is_array(3) || reply.items[0].text != "message") return false;
  // The message about a tracked key is a list with the key's name.
  Reply& said = reply.items[2].items.empty() ? reply.items[2] : reply.items[2].items[0];
  link_->inbox.push_back({std::move(reply.items[1].text), std::move(said.text)});
  return true;
}

Reply RedisConnection::next_reply(const CallOptions& call_options) {
  for (bool first = true;; first = false) {
    while (auto reply = link_->reader.next()) {
      if (take_message(*reply)) continue;
      --link_->pending_replies;
      return *reply;
    }
    // Bytes that arrive without end, or one by one, delay the caller no longer than silence does.
    if (!first) look_at_the_clock(call_options);
    link_->reader.feed(link_->stream.receive(call_options));
  }
}

std::variant<Published, Wake::Reason> RedisConnection::next_message(Deadline until, int cancel_fd) {
  return named(resolver_.name(), [&]() -> std::variant<Published, Wake::Reason> {
    if (!is_open()) throw_unavailable("the connection broke");
    try {
      for (check_in_step(); link_->inbox.empty(); check_in_step()) {
        if (const auto end = end_of_sleep(until, cancel_fd)) return *end;
        link_->reader.feed(link_->stream.receive({until, cancel_fd}));
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) return Wake::Reason::interrupted;
      if (left_until(until) == milliseconds(0)) return Wake::Reason::due;
      close();
      throw;
    }
    Published message = std::move(link_->inbox.front());
    link_->inbox.pop_front();
    return message;
  });
}

std::deque<Request> RedisConnection::set_up(const Endpoint& endpoint,
                                            const CallOptions& call_options) const {
  std::deque<Request> requests;
  if (endpoint.password && endpoint.user) {
    requests.push_back({"AUTH", *endpoint.user, endpoint.password->text(call_options)});
  } else if (endpoint.password) {
    requests.push_back({"AUTH", endpoint.password->text(call_options)});
  }
  if (endpoint.database != 0) {
    requests.push_back({"SELECT", std::to_string(endpoint.database)});
  }
  if (resolver_.may_move() || handshake_.only_a_master) requests.push_back({"ROLE"});
  requests.push_back({"CLIENT", "SETNAME", "dlock"});
  requests.insert(requests.end(), handshake_.requests.begin(), handshake_.requests.end());
  return requests;
}

void RedisConnection::check_set_up(const Reply& reply, const Request& request) const {
  if (reply.is_error() && request.front() == "AUTH") {
    throw auth_error(reply, std::span(request).subspan(1));
  }
  if (reply.is_error()) {
    // The name is only for CLIENT LIST, and a lean ACL denies it. Before a server closes the
    // connection, however, its last error comes in place of this reply.
    const Error error = server_error(reply);
    const bool is_denied = error.cause() == Cause::acl || error.cause() == Cause::other_reply;
    if (request.front() != "CLIENT" || !is_denied) throw Error(error);
  }
  if (request.front() == "ROLE") check_role(link_->to, reply, resolver_.may_move() || links_ > 1);
}

}  // namespace dlock
