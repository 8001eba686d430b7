#include "redis/redis_client.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "lock/store.hpp"
#include "redis/entry_format.hpp"

namespace dlock {

RedisClient::RedisClient(EndpointResolver resolver, const RedisStoreOptions& options,
                         Handshake handshake)
    : RedisConnection(std::move(resolver), std::move(handshake), options.on_link),
      may_move_(options.may_move) {}

ScriptReply RedisClient::run_script(const ScriptRun& run, const CallOptions& call_options) {
  ScriptReply reply = run_once(run, false, false, call_options);
  if (leave_if_deposed(reply)) {
    reply = run_once(run, false, reply.sent_twice, call_options);
    leave_if_deposed(reply);
  }
  if (reply.is_error("NOSCRIPT")) reply = run_once(run, true, reply.sent_twice, call_options);
  return reply;
}

bool RedisClient::leave_if_deposed(const Reply& reply) {
  const bool is_replica = reply.is_error("READONLY") || reply.is_error("MASTERDOWN");
  if (is_replica) close();
  return is_replica;
}

ScriptReply RedisClient::run_once(const ScriptRun& run, bool by_text, bool sent_before,
                                  const CallOptions& call_options) {
  const bool listen = !run.channel.empty();
  const int link = links();
  const std::string server = server_id(call_options);
  std::vector<Request> requests;
  if (!is_open() || links() != link) subscribed_.clear();
  if (!subscribed_.empty()) requests.push_back({"UNSUBSCRIBE", subscribed_});
  if (run.asking) requests.push_back({"ASKING"});
  if (listen) {
    requests.push_back({"MULTI"});
    requests.push_back({"SUBSCRIBE", run.channel});
  }
  Request script{by_text ? "EVAL" : "EVALSHA", std::string(by_text ? run.text : run.sha1),
                 std::to_string(run.keys.size())};
  script.insert(script.end(), run.keys.begin(), run.keys.end());
  const std::size_t before_arguments = script.size();
  script.insert(script.end(), run.arguments.begin(), run.arguments.end());
  if (run.server_argument) script[before_arguments + *run.server_argument] = server;
  requests.push_back(std::move(script));
  if (listen) requests.push_back({"EXEC"});
  subscribed_ = run.channel;
  LinkId* unanswered = run.unanswered;
  if (unanswered != nullptr && !unanswered->was_opened()) {
    *unanswered = {this, links() + (is_open() ? 0 : 1)};
  }
  auto replies = exchange(requests, call_options);
  const LinkId here{this, links()};
  if (unanswered != nullptr && *unanswered == here) *unanswered = {};
  check_link();
  const bool sent_twice = sent_before || was_sent_twice();
  // If the link now leads to another server than the request names, that one may have executed it.
  const bool may_be_done = sent_twice || !replies.back().is_error("NOSCRIPT");
  const bool has_moved = server_id(call_options) != server;
  // The link that listened may have broken, and been replaced by one to the same server.
  if (links() != here.number) subscribed_.clear();
  if (has_moved) return run_once(run, by_text, may_be_done, call_options);
  if (!listen) return {in_items(std::move(replies.back())), sent_twice, server, here};
  for (const Reply& reply : replies) {
    if (reply.is_error() && !reply.is_error("EXECABORT")) return {reply, sent_twice, server, here};
  }
  if (!replies.back().is_array(2)) unexpected_answer();
  return {in_items(std::move(replies.back().items[1])), sent_twice, server, here};
}

std::vector<Reply> RedisClient::read(const std::vector<std::string>&,
                                     const std::vector<Request>& requests,
                                     const CallOptions& call_options) {
  if (!is_open()) subscribed_.clear();
  if (!subscribed_.empty()) {
    // A connection that listens to a channel may not send plain commands.
    const Request unsubscribe{"UNSUBSCRIBE", subscribed_};
    exchange(std::span(&unsubscribe, 1), call_options);
    subscribed_.clear();
  }
  const auto ask = [&] {
    auto replies = exchange(requests, call_options);
    check_link();
    return replies;
  };
  auto replies = ask();
  const auto is_deposed = [&](const Reply& reply) { return leave_if_deposed(reply); };
  if (!std::any_of(replies.begin(), replies.end(), is_deposed)) return replies;
  return ask();
}

std::string RedisClient::server_id(const CallOptions& call_options) {
  if (!may_move_) return "";
  return std::to_string(fnv1a(connect(call_options).address()));
}

std::variant<std::string, Wake::Reason> RedisClient::next_message(const std::string& channel,
                                                                  Deadline until, int cancel_fd) {
  if (subscribed_ != channel) {
    throw_unavailable(name() + ": another request has ended the listening");
  }
  while (true) {
    auto next = RedisConnection::next_message(until, cancel_fd);
    if (const auto* why = std::get_if<Wake::Reason>(&next)) return *why;
    auto& message = std::get<Published>(next);
    if (message.channel == channel) return std::move(message.payload);
  }
}

void scan(RedisClient& server, const Request& narrowed, const CallOptions& call_options,
          const std::function<void(std::vector<std::string> names)>& take) {
  std::string cursor = "0";
  while (true) {
    Request request{"SCAN", cursor, "COUNT", "1000"};
    request.insert(request.end(), narrowed.begin(), narrowed.end());
    Reply page =
        server.read({}, {request}, at_most(silence_of_a_dead_server, call_options)).front();
    if (page.is_error()) throw server_error(page, server.name());
    std::vector<std::string> names;
    for (const Reply& name : reply_item(page, 1).items) names.push_back(name.text);
    take(std::move(names));
    cursor = std::move(page.items[0].text);
    if (cursor == "0") return;
  }
}

}  // namespace dlock
