#include "redis/redis_client.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "redis/redirection.hpp"
#include "redis/script_answer.hpp"
#include "redis/server_error.hpp"

namespace dlock {

RedisClient::RedisClient(std::unique_ptr<EndpointResolver> route, RedisTerms terms,
                         std::vector<Request> questions)
    : terms_(std::move(terms)),
      connection_(std::move(route), std::move(questions), terms_.on_link, terms_.on_resolved) {}

void RedisClient::precede_with(Request request) {
  preceding_ = std::move(request);
  said_before_.reset();
}

std::vector<Reply> RedisClient::exchange_preceded(std::vector<Request>& requests,
                                                  std::ptrdiff_t place,
                                                  const CallOptions& call_options) {
  if (!preceding_.empty()) requests.insert(requests.begin() + place, preceding_);
  auto replies = connection_.exchange(requests, call_options);
  if (preceding_.empty()) return replies;
  said_before_ = std::move(replies[static_cast<std::size_t>(place)]);
  replies.erase(replies.begin() + place);
  return replies;
}

Reply RedisClient::run_script(const ScriptRun& run, const CallOptions& call_options) {
  sent_twice_ = false;
  Reply reply = run_once(run, false, call_options);
  if (is_deposed(reply)) {
    connection_.close();
    reply = run_once(run, false, call_options);
  }
  if (reply.is_error("NOSCRIPT")) reply = run_once(run, true, call_options);
  return reply;
}

bool RedisClient::is_deposed(const Reply& reply) const {
  const bool replica = is_of_class(reply, "READONLY") || is_of_class(reply, "MASTERDOWN");
  return replica && connection_.may_move();
}

Reply RedisClient::run_once(const ScriptRun& run, bool by_text, const CallOptions& call_options) {
  const bool listen = !run.channel.empty();
  const int link = connection_.links();
  here_ = place(call_options);
  std::vector<Request> requests;
  if (!connection_.is_open() || connection_.links() != link) subscribed_.clear();
  if (!subscribed_.empty()) requests.push_back({"UNSUBSCRIBE", subscribed_});
  const auto place_before = static_cast<std::ptrdiff_t>(requests.size());
  if (listen) {
    requests.push_back({"MULTI"});
    requests.push_back({"SUBSCRIBE", run.channel});
  }
  Request script{by_text ? "EVAL" : "EVALSHA", std::string(by_text ? run.text : run.sha1),
                 std::to_string(run.keys.size())};
  script.insert(script.end(), run.keys.begin(), run.keys.end());
  script.insert(script.end(), run.arguments.begin(), run.arguments.end());
  if (run.placed) {
    const auto first = script.end() - static_cast<std::ptrdiff_t>(run.arguments.size());
    if (listen && !here_.empty()) first[channel_argument] += "@" + here_;
    script.insert(first + 2, here_);
  }
  requests.push_back(std::move(script));
  if (listen) requests.push_back({"EXEC"});
  subscribed_ = run.channel;
  auto replies = exchange_preceded(requests, place_before, call_options);
  sent_twice_ = sent_twice_ || connection_.was_sent_twice();
  // It went to another server than it says.
  if (place(call_options) != here_) return run_once(run, by_text, call_options);
  if (!listen) return in_items(std::move(replies.back()));
  for (const Reply& reply : replies) {
    if (reply.is_error() && !reply.is_error("EXECABORT")) return reply;
  }
  if (!replies.back().is_array(2)) connection_.close();
  return in_items(item(replies.back(), 1));
}

void RedisClient::stop_listening(const CallOptions& call_options) {
  if (!connection_.is_open()) subscribed_.clear();
  if (subscribed_.empty()) return;
  const Request unsubscribe{"UNSUBSCRIBE", subscribed_};
  connection_.exchange(std::span(&unsubscribe, 1), call_options);
  subscribed_.clear();
}

std::vector<Reply> RedisClient::read(const std::vector<Request>& requests,
                                     const CallOptions& call_options) {
  stop_listening(call_options);
  if (preceding_.empty()) return connection_.exchange(requests, call_options);
  auto all = requests;
  return exchange_preceded(all, 0, call_options);
}

std::string RedisClient::place(const CallOptions& call_options) {
  if (!terms_.may_move) return "";
  return std::to_string(fnv1a(connection_.connect(call_options).address()));
}

std::variant<std::string, Wake::Reason> RedisClient::next_on(const std::string& channel,
                                                             Deadline until, int cancel_fd) {
  if (subscribed_ != channel) {
    throw Error(ErrorKind::unavailable,
                server_name() + ": another request has ended the listening");
  }
  try {
    while (auto message = connection_.next_message({until, cancel_fd})) {
      if (message->channel == channel) return std::move(message->payload);
      if (const auto end = end_of_sleep(until, cancel_fd)) return *end;
    }
  } catch (const Error& error) {
    if (error.trouble() != ErrorKind::interrupted) throw;
    return Wake::Reason::interrupted;
  }
  return Wake::Reason::due;
}

std::optional<Wake::Reason> end_of_sleep(Deadline until, int cancel_fd) {
  if (cancel_fd >= 0 && readable(cancel_fd)) return Wake::Reason::interrupted;
  if (BootClock::now() >= until) return Wake::Reason::due;
  return std::nullopt;
}

void RedisClient::throw_error(const Reply& reply, const Error& error,
                              const std::string& message) const {
  const auto redirection = redirection_in(reply);
  if (redirection && terms_.cluster) throw Redirected(*redirection, message);
  const bool of_a_cluster = redirection && redirection->kind != Redirection::Kind::later;
  throw error.reworded(message + (of_a_cluster ? "; a Cluster is named by redis+cluster://" : ""));
}

}  // namespace dlock
