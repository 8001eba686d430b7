#include "redis/redis_client.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "redis/protocol_text.hpp"
#include "redis/reply.hpp"

namespace dlock {

RedisClient::RedisClient(std::unique_ptr<EndpointResolver> route, const RedisTerms& terms,
                         LinkQuestions questions)
    : may_move_(terms.may_move),
      connection_(std::move(route), std::move(questions), terms.on_link) {}

ScriptReply RedisClient::run_script(const ScriptRun& run, const CallOptions& call_options) {
  return run_script_here(run, call_options);
}

ScriptReply RedisClient::run_script_here(const ScriptRun& run, const CallOptions& call_options,
                                         Asking asking) {
  ScriptReply reply = run_once(run, run.by_text, false, asking, call_options);
  if (leave_if_deposed(reply)) {
    reply = run_once(run, run.by_text, reply.sent_twice, asking, call_options);
    leave_if_deposed(reply);
  }
  if (reply.is_error("NOSCRIPT")) {
    reply = run_once(run, true, reply.sent_twice, asking, call_options);
  }
  return reply;
}

bool RedisClient::leave_if_deposed(const Reply& reply) {
  const bool is_replica = is_of_class(reply, "READONLY") || is_of_class(reply, "MASTERDOWN");
  if (is_replica) connection_.close();
  return is_replica;
}

ScriptReply RedisClient::run_once(const ScriptRun& run, bool by_text, bool sent_before,
                                  Asking asking, const CallOptions& call_options) {
  const bool listen = !run.channel.empty();
  const int link = links();
  const std::string server = place(call_options);
  std::vector<Request> requests;
  if (!is_open() || links() != link) subscribed_.clear();
  if (!subscribed_.empty()) requests.push_back({"UNSUBSCRIBE", subscribed_});
  const auto keyed = static_cast<std::ptrdiff_t>(requests.size());
  if (listen) {
    requests.push_back({"MULTI"});
    requests.push_back({"SUBSCRIBE", run.channel});
  }
  Request script{by_text ? "EVAL" : "EVALSHA", std::string(by_text ? run.text : run.sha1),
                 std::to_string(run.keys.size())};
  script.insert(script.end(), run.keys.begin(), run.keys.end());
  script.insert(script.end(), run.arguments.begin(), run.arguments.end());
  if (run.placed) {
    const auto count = run.arguments.size();
    const auto arguments = script.end() - static_cast<std::ptrdiff_t>(count);
    const bool has_channel = count > channel_argument && !run.arguments[channel_argument].empty();
    if (has_channel && !server.empty()) arguments[channel_argument] += "@" + server;
    script.insert(arguments + 2, server);
  }
  requests.push_back(std::move(script));
  if (listen) requests.push_back({"EXEC"});
  subscribed_ = run.channel;
  auto replies = exchange(requests, keyed, asking, call_options, run.unanswered);
  const LinkId here{this, links()};
  const bool sent_twice = sent_before || connection_.was_sent_twice();
  // The request went to another server than it names, which may have executed it.
  const bool may_be_done = sent_twice || !replies.back().is_error("NOSCRIPT");
  const bool has_moved = place(call_options) != server;
  // The link that listened may have broken, and been replaced by one to the same server.
  if (links() != here.number) subscribed_.clear();
  if (has_moved) return run_once(run, by_text, may_be_done, asking, call_options);
  if (!listen) return {in_items(std::move(replies.back())), sent_twice, server, here};
  for (const Reply& reply : replies) {
    if (reply.is_error() && !reply.is_error("EXECABORT")) return {reply, sent_twice, server, here};
  }
  if (!replies.back().is_array(2)) connection_.close();
  return {in_items(item(replies.back(), 1)), sent_twice, server, here};
}

std::vector<Reply> RedisClient::exchange(const std::vector<Request>& requests, std::ptrdiff_t keyed,
                                         Asking asking, const CallOptions& call_options,
                                         LinkId* unanswered) {
  std::vector<Request> asked;
  if (asking == Asking::yes) {
    asked = requests;
    asked.insert(asked.begin() + keyed, {"ASKING"});
  }
  if (unanswered != nullptr && !unanswered->was_opened()) {
    *unanswered = {this, links() + (is_open() ? 0 : 1)};
  }
  auto replies = connection_.exchange(asking == Asking::yes ? asked : requests, call_options);
  if (unanswered != nullptr && *unanswered == LinkId{this, links()}) *unanswered = {};
  if (asking == Asking::yes) {
    const Reply allowed = std::move(replies[static_cast<std::size_t>(keyed)]);
    replies.erase(replies.begin() + keyed);
    if (allowed.is_error()) throw server_error(allowed, name());
  }
  check_link();
  return replies;
}

void RedisClient::stop_listening(const CallOptions& call_options) {
  if (!is_open()) subscribed_.clear();
  if (subscribed_.empty()) return;
  const Request unsubscribe{"UNSUBSCRIBE", subscribed_};
  connection_.exchange(std::span(&unsubscribe, 1), call_options);
  subscribed_.clear();
}

std::vector<Reply> RedisClient::read(const std::vector<std::string>&,
                                     const std::vector<Request>& requests,
                                     const CallOptions& call_options) {
  return read_here(requests, call_options);
}

std::vector<Reply> RedisClient::read_here(const std::vector<Request>& requests,
                                          const CallOptions& call_options, Asking asking) {
  stop_listening(call_options);
  auto replies = exchange(requests, 0, asking, call_options);
  const auto is_deposed = [&](const Reply& reply) { return leave_if_deposed(reply); };
  if (!std::any_of(replies.begin(), replies.end(), is_deposed)) return replies;
  return exchange(requests, 0, asking, call_options);
}

void RedisClient::visit_all(const CallOptions&, const Visit& visit) { visit(*this); }

std::string RedisClient::place(const CallOptions& call_options) {
  if (!may_move_) return "";
  return std::to_string(fnv1a(connection_.connect(call_options).address()));
}

std::variant<ChannelMessage, Wake::Reason> RedisClient::next_message(const std::string& channel,
                                                                     Deadline until,
                                                                     int cancel_fd) {
  if (subscribed_ != channel) {
    throw Error(ErrorKind::unavailable, name() + ": another request has ended the listening");
  }
  try {
    while (auto message = connection_.next_message({until, cancel_fd})) {
      if (message->channel == channel)
        return ChannelMessage{std::move(message->payload), {this, links()}};
      if (const auto end = end_of_sleep(until, cancel_fd)) return *end;
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::interrupted) throw;
    return Wake::Reason::interrupted;
  }
  return Wake::Reason::due;
}

}  // namespace dlock
