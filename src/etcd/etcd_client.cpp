#include "etcd/etcd_client.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

using nlohmann::json;

/// The longest wait for one server while another may answer.
constexpr milliseconds longest_try{2000};
constexpr milliseconds shortest_try{300};
/// The pause after a request to each of the servers, while they elect a leader.
constexpr milliseconds pause_between_rounds{100};

/// The answer of etcd's gateway; nothing if a proxy or another product answered.
std::optional<EtcdAnswer> answer_in(const HttpCall& call) {
  constexpr long http_ok = 200;
  constexpr EtcdCode last_code = EtcdCode::unauthenticated;
  auto answer = parse_answer(call.answer);
  if (!answer) return std::nullopt;
  const bool is_error = answer->code != EtcdCode::ok;
  const bool is_of_etcd = is_error ? answer->code <= last_code : call.status == http_ok;
  if (!is_of_etcd) return std::nullopt;
  return answer;
}

/// Describes an answer that answer_in() does not accept, for people.
std::string other_answer(const HttpCall& call) {
  constexpr long http_not_found = 404;
  if (call.status == http_not_found) {
    return "it answers 404: is it an etcd 3.4 or later, and run without "
           "--enable-grpc-gateway=false?";
  }
  std::string line = call.answer.substr(0, 60);
  line.resize(std::min(line.size(), line.find('\n')));
  return "not the gateway of an etcd 3.4 or later: it answers " + std::to_string(call.status) +
         (line.empty() ? "" : " " + escaped(line));
}

/// JSON holds only UTF-8. The message does not show the text, which may be a password.
void require_utf8(const std::string& text, const std::string& what) {
  if (!is_utf8(text)) throw_usage(what + " is not UTF-8, and etcd's gateway takes no other");
}

/// Whether another server may answer. A member that has just lost the leadership reports it with an
/// unspecific code (etcd-io/etcd#21671).
bool is_away(const EtcdAnswer& answer) {
  const bool lost_lead = answer.code == EtcdCode::unknown &&
                         answer.message.find("not a primary lessor") != std::string::npos;
  return lost_lead || answer.code == EtcdCode::unavailable;
}

/// Whether a new login may help: the token has expired, or, as a jwt, names an older revision of
/// users and roles.
bool is_of_old_login(const EtcdAnswer& answer) {
  const bool users_changed =
      answer.code == EtcdCode::invalid_argument &&
      answer.message.find("revision of auth store is old") != std::string::npos;
  return users_changed || answer.code == EtcdCode::unauthenticated;
}

}  // namespace

EtcdClient::EtcdClient(const std::vector<Endpoint>& servers, std::string shown)
    : shown_(std::move(shown)), http_(servers.front().tls) {
  for (const Endpoint& server : servers) servers_.push_back({server, "/v3/"});
}

/// The name for messages; with several servers, it contains the address of the current one.
std::string EtcdClient::server_name() const {
  return servers_.size() == 1 ? shown_ : shown_ + ": " + servers_[current_].endpoint.address();
}

void EtcdClient::refuse(const EtcdAnswer& failed) const {
  const auto has = [&](const char* words) {
    return failed.message.find(words) != std::string::npos;
  };
  const auto fail = [&](ErrorKind kind, Cause cause, const std::string& why) {
    throw Error(kind, shown_ + ": " + why, cause);
  };
  const std::string said = escaped(failed.message);
  if (failed.code == EtcdCode::resource_exhausted && has("database space exceeded")) {
    fail(ErrorKind::unavailable, Cause::out_of_memory,
         "its database is full (alarm NOSPACE): compact and defragment it, then "
         "`etcdctl alarm disarm`");
  }
  if (failed.code == EtcdCode::permission_denied) {
    fail(ErrorKind::denied, Cause::acl,
         said + ": `dlock doctor --acl` prints the rights that dlock needs");
  }
  if (has("user name is empty")) {
    fail(ErrorKind::denied, Cause::password_missing, "it requires a user and a password");
  }
  if (has("authentication failed")) {
    fail(ErrorKind::denied, Cause::password_wrong, "user or password is wrong");
  }
  if (has("authentication is not enabled")) {
    fail(ErrorKind::denied, Cause::password_unneeded,
         "it takes no password: drop user and password");
  }
  const bool denied = failed.code == EtcdCode::unauthenticated;
  throw Error(denied ? ErrorKind::denied : ErrorKind::unavailable, shown_ + ": " + said,
              Cause::other_reply);
}

/// Makes the next server current.
EtcdClient::Trouble EtcdClient::pass_over(Trouble trouble) {
  servers_[current_].resolved.clear();
  // A server that does not answer may have stopped sending on its stream, too.
  if (stream_server_ == current_) http_.close_stream();
  next_server();
  return trouble;
}

/// Why the current server gave no answer, or cannot answer now.
EtcdClient::Trouble EtcdClient::trouble_of(const HttpCall& call,
                                           const std::optional<EtcdAnswer>& answer) const {
  const auto unavailable = [&](const std::string& why, Cause cause = Cause::none) {
    return Error(ErrorKind::unavailable, server_name() + ": " + why, cause);
  };
  if (answer) {
    const bool is_learner = answer->message.find("not supported for learner") != std::string::npos;
    if (!is_learner) return {unavailable(escaped(answer->message)), true};
    return {unavailable("it is a learner, which grants no lock: name the voting members")};
  }
  if (call.end != HttpCall::End::answered) return {call.no_answer(server_name())};
  return {unavailable(other_answer(call), Cause::other_reply)};
}

/// The deadline of one try: a server gets only a share of the time if others may answer instead.
Deadline EtcdClient::try_until(std::size_t tries, Deadline deadline) const {
  if (servers_.size() == 1) return deadline;
  const auto others = servers_.size() - 1 - std::min(tries, servers_.size() - 1);
  const auto left = left_until(deadline);
  const auto share = std::clamp(left / static_cast<int>(others + 1), shortest_try, longest_try);
  return std::min(deadline, later(BootClock::now(), share));
}

/// Asks the current server. If its name cannot be resolved, or it does not answer or answers that
/// it is unavailable, the next server becomes current.
std::variant<EtcdClient::Answers, EtcdClient::Trouble> EtcdClient::try_once(
    const std::vector<EtcdRequest>& requests, bool once, const CallOptions& call_options) {
  try {
    servers_[current_].look_up(call_options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    return pass_over({error.reworded(server_name() + ": " + error.what())});
  }
  std::vector<HttpCall> calls;
  for (const EtcdRequest& request : requests) {
    calls.push_back(
        {.to = servers_[current_].at(request.path), .body = request.fields.dump(), .once = once});
  }
  http_.send(calls, call_options);
  Answers answers;
  for (const HttpCall& call : calls) {
    std::optional<EtcdAnswer> answer;
    if (call.end == HttpCall::End::answered) answer = answer_in(call);
    if (!answer || is_away(*answer)) {
      const Trouble trouble = pass_over(trouble_of(call, answer));
      if (once && call.may_have_come) throw Error(trouble.error);
      return trouble;
    }
    answers.push_back(std::move(*answer));
  }
  return answers;
}

/// Asks one server after the other.
EtcdClient::Answers EtcdClient::ask_servers(const std::vector<EtcdRequest>& requests, bool once,
                                            const CallOptions& call_options) {
  bool each_refuses = true;
  for (std::size_t tries = 0;; ++tries) {
    CallOptions of_try = call_options;
    of_try.deadline = try_until(tries, call_options.deadline);
    auto result = try_once(requests, once, of_try);
    if (auto* answers = std::get_if<Answers>(&result)) return std::move(*answers);
    const auto& [error, is_electing] = std::get<Trouble>(result);
    each_refuses = each_refuses && error.kind() == ErrorKind::denied;
    const bool all_tried = tries + 1 >= servers_.size();
    if (BootClock::now() >= call_options.deadline || (all_tried && !is_electing)) {
      // At least one server did not refuse the login, and may answer later: a waiter may retry.
      if (!each_refuses) throw_unavailable(error.what(), error.cause());
      throw Error(error);
    }
    if (all_tried) pause(pause_between_rounds, call_options);
  }
}

void EtcdClient::log_in(const CallOptions& call_options) {
  const Endpoint& server = servers_.front().endpoint;
  if (logged_in_ || !server.user) return;
  const std::string password = server.password ? server.password->text(call_options) : "";
  require_utf8(*server.user, shown_ + ": the user");
  require_utf8(password, shown_ + ": the password");
  http_.set_authorization("");  // etcd 3.4 refuses a login with a token that it does not know
  const EtcdRequest request{"auth/authenticate", {{"name", *server.user}, {"password", password}}};
  const EtcdAnswer answer = ask_servers({request}, false, call_options).front();
  if (answer.code != EtcdCode::ok) refuse(answer);
  http_.set_authorization(text_at(answer.fields, "/token"));
  logged_in_ = true;
}

EtcdClient::Answers EtcdClient::ask_logged_in(const std::vector<EtcdRequest>& requests, bool once,
                                              const CallOptions& call_options) {
  log_in(call_options);
  auto answers = ask_servers(requests, once, call_options);
  if (std::none_of(answers.begin(), answers.end(), is_of_old_login)) return answers;
  logged_in_ = false;
  log_in(call_options);
  return ask_servers(requests, once, call_options);
}

std::vector<EtcdAnswer> EtcdClient::ask(const std::vector<EtcdRequest>& requests,
                                        const CallOptions& call_options) {
  return ask_logged_in(requests, false, call_options);
}

EtcdAnswer EtcdClient::ask_once(const EtcdRequest& request, const CallOptions& call_options) {
  return ask_logged_in({request}, true, call_options).front();
}

json EtcdClient::done(const EtcdRequest& request, const CallOptions& call_options) {
  auto answers = ask({request}, call_options);
  if (answers.front().code != EtcdCode::ok) refuse(answers.front());
  return std::move(answers.front().fields);
}

void EtcdClient::open_stream(const std::string& path, const std::string& body) {
  stream_server_ = current_;
  http_.open_stream({.to = servers_[current_].at(path), .body = body});
}

std::variant<std::string, HttpClient::StreamEnd> EtcdClient::next_line(Deadline until,
                                                                       int cancel_fd) {
  auto line = http_.next_line(until, cancel_fd);
  const auto* end = std::get_if<HttpClient::StreamEnd>(&line);
  if (end != nullptr && *end == HttpClient::StreamEnd::broken) {
    http_.close_stream();
    servers_[stream_server_].resolved.clear();
    if (stream_server_ == current_) next_server();
  }
  return line;
}

}  // namespace dlock
