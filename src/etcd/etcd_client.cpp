#include "etcd/etcd_client.hpp"

#include <algorithm>
#include <utility>

#include "base/backoff.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "net/resolve.hpp"

namespace dlock {
namespace {

using nlohmann::json;

/// While another server may answer, one is not waited for longer.
constexpr milliseconds longest_try{2000};
constexpr milliseconds shortest_try{300};
/// Between rounds of all servers, while they have no leader.
constexpr milliseconds pause_between_rounds{100};

/// Each request under way has it several times.
constexpr std::size_t longest_token = 16'384;

constexpr char login_path[] = "auth/authenticate";

/// What went wrong with certificates is for people to mend, on this host or that.
bool is_refused_certificate(const HttpCall& call) {
  const bool verified = call.code != CURLE_PEER_FAILED_VERIFICATION &&
                        call.code != CURLE_SSL_CERTPROBLEM && call.code != CURLE_SSL_CACERT_BADFILE;
  const bool wanted = call.trouble.find("alert") != std::string::npos &&
                      call.trouble.find("certificate") != std::string::npos;
  return !verified || wanted;
}

/// A file of TLS that was good when we began is being replaced where this comes later.
bool is_of_a_file(const HttpCall& call) {
  return call.code == CURLE_SSL_CERTPROBLEM || call.code == CURLE_SSL_CACERT_BADFILE;
}

std::string text_in(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Nothing if it is not of etcd's gateway, but of a proxy or another product.
std::optional<EtcdAnswer> answer_in(const HttpCall& call) {
  constexpr long http_ok = 200;
  constexpr EtcdCode last_code = EtcdCode::unauthenticated;
  // An answer that comes as a stream ends with a line for each part, here one.
  std::string_view text = call.answer;
  while (text.ends_with('\n')) text.remove_suffix(1);
  auto answer = parse_answer(text);
  if (!answer) return std::nullopt;
  const bool is_error = answer->code != EtcdCode::ok;
  const bool is_of_etcd = is_error ? answer->code <= last_code : call.status == http_ok;
  if (!is_of_etcd) return std::nullopt;
  return answer;
}

/// For people, where answer_in() has nothing.
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

/// JSON holds no other text. The message shows nothing of it, which may be a password.
void require_utf8(const std::string& text, const std::string& what) {
  if (!is_utf8(text)) throw_usage(what + " is not UTF-8, and etcd's gateway takes no other");
}

/// Whether another server may do it. A member that has just lost the lead says so by a code that
/// means nothing (etcd-io/etcd#21671).
bool is_away(const EtcdAnswer& answer) {
  const bool lost_lead = answer.code == EtcdCode::unknown &&
                         answer.message.find("not a primary lessor") != std::string::npos;
  return lost_lead || answer.code == EtcdCode::unavailable;
}

/// Whether another login may do it: the token is too old, or names an older state of all users and
/// roles, as tokens of the kind jwt do.
bool is_of_old_login(const EtcdAnswer& answer) {
  const bool users_changed =
      answer.code == EtcdCode::invalid_argument &&
      answer.message.find("revision of auth store is old") != std::string::npos;
  return users_changed || answer.code == EtcdCode::unauthenticated;
}

}  // namespace

EtcdClient::EtcdClient(std::vector<Endpoint> servers, std::string shown)
    : servers_(std::move(servers)),
      addresses_(servers_.size()),
      shown_(std::move(shown)),
      http_(servers_.front().tls) {}

HttpAddress EtcdClient::address_of_request(const std::string& path) const {
  const Endpoint& server = servers_[current_];
  const std::string resolved = addresses_[current_].value_or("");
  if (!server.tls) return {"http://" + server.address() + "/v3/" + path, {}, resolved};
  const std::string& name = server.tls->server_name;
  if (name.empty()) return {"https://" + server.address() + "/v3/" + path, {}, resolved};
  // The certificate is for this name.
  return {"https://" + name + ":" + std::to_string(server.port) + "/v3/" + path,
          "::" + server.address(), resolved};
}

/// The addresses are good until the server fails.
void EtcdClient::look_up(const CallOptions& call_options) {
  const Endpoint& server = servers_[current_];
  if (addresses_[current_]) return;
  std::vector<std::string> found = resolve_in_digits(server.host, call_options);
  const auto has = [](const std::string& text, char what) {
    return text.find(what) != std::string::npos;
  };
  // libcurl takes no zone here, and looks up no host that is an address of IPv6.
  std::erase_if(found, [&](const std::string& address) { return has(address, '%'); });
  if (has(server.host, ':')) found.clear();
  const std::string name = server.host + ":" + std::to_string(server.port) + ":";
  addresses_[current_] = found.empty() ? "" : name + joined(found, ",", in_brackets);
}

/// Of several, the one that is asked.
std::string EtcdClient::server_name() const {
  return servers_.size() == 1 ? shown_ : shown_ + ": " + servers_[current_].address();
}

void EtcdClient::refuse(const EtcdAnswer& failed) const {
  const std::string said = shown_ + ": " + escaped(failed.message);
  const auto has = [&](const char* words) {
    return failed.message.find(words) != std::string::npos;
  };
  if (failed.code == EtcdCode::resource_exhausted && has("database space exceeded")) {
    throw_unavailable(shown_ +
                          ": its database is full (alarm NOSPACE): compact and defragment it, then "
                          "`etcdctl alarm disarm`",
                      Cause::out_of_memory);
  }
  if (failed.code == EtcdCode::permission_denied) {
    throw Error(ErrorKind::denied,
                said + ": `dlock doctor --acl` prints the rights that dlock needs", Cause::acl);
  }
  if (has("user name is empty")) {
    throw Error(ErrorKind::denied, shown_ + ": it requires a user and a password",
                Cause::password_missing);
  }
  if (has("authentication failed")) {
    throw Error(ErrorKind::denied, shown_ + ": user or password is wrong", Cause::password_wrong);
  }
  if (has("authentication is not enabled")) {
    throw Error(ErrorKind::denied, shown_ + ": it takes no password: drop user and password",
                Cause::password_unneeded);
  }
  const bool denied = failed.code == EtcdCode::unauthenticated;
  throw Error(denied ? ErrorKind::denied : ErrorKind::unavailable, said, Cause::other_reply);
}

void EtcdClient::pass_over(const std::string& why, Cause cause, ErrorKind kind) {
  is_electing_ = was_too_large_ = false;
  trouble_ = Error(kind, server_name() + ": " + why, cause);
  // A server that does not answer may be silent on its stream, too.
  if (stream_server_ == current_) http_.close_stream();
  next_server();
}

/// Notes why the server has no answer, or says that it cannot answer now; the next one is current
/// then.
void EtcdClient::pass_over(const HttpCall& call, const std::optional<EtcdAnswer>& answer) {
  addresses_[current_].reset();
  if (answer) {
    const bool is_learner = answer->message.find("not supported for learner") != std::string::npos;
    pass_over(is_learner ? "it is a learner, which grants no lock: name the voting members"
                         : escaped(answer->message),
              Cause::none);
    is_electing_ = !is_learner;
  } else if (call.too_large) {
    pass_over(too_large_answer, Cause::none);
    was_too_large_ = true;
  } else if (call.code == CURLE_OK) {
    pass_over(other_answer(call), Cause::other_reply);
  } else if (is_refused_certificate(call) && !(has_answered_ && is_of_a_file(call))) {
    pass_over(call.trouble, Cause::certificate, ErrorKind::denied);
  } else {
    pass_over(call.trouble, Cause::none);
  }
}

/// While others may answer instead, a server gets its share of the time only.
Deadline EtcdClient::try_until(std::size_t tries, Deadline deadline) const {
  const auto others = servers_.size() - 1 - std::min(tries, servers_.size() - 1);
  if (others == 0 && servers_.size() == 1) return deadline;
  const auto left = left_until(deadline);
  const auto share = std::clamp(left / static_cast<int>(others + 1), shortest_try, longest_try);
  return std::min(deadline, later(BootClock::now(), share));
}

/// Nothing if the server is not found, did not answer, or only that it cannot now; the next one is
/// current then.
std::optional<std::vector<EtcdAnswer>> EtcdClient::try_once(
    const std::vector<EtcdRequest>& requests, Repeat repeat, const CallOptions& call_options) {
  try {
    look_up(call_options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    pass_over(error.what(), error.cause());
    return std::nullopt;
  }
  const bool once = repeat == Repeat::no;
  std::vector<HttpCall> calls;
  for (const EtcdRequest& request : requests)
    calls.push_back({address_of_request(request.path), request.fields.dump(), once});
  http_.post(calls, call_options);
  std::vector<EtcdAnswer> answers;
  for (const HttpCall& call : calls) {
    std::optional<EtcdAnswer> answer;
    if (call.code == CURLE_OK) answer = answer_in(call);
    if (answer && !is_away(*answer)) {
      has_answered_ = true;
      answers.push_back(std::move(*answer));
      continue;
    }
    pass_over(call, answer);
    if (once && call.may_have_come) throw Error(*trouble_);
    return std::nullopt;
  }
  return answers;
}

void EtcdClient::log_in(const CallOptions& call_options) {
  const Endpoint& server = servers_.front();
  if (logged_in_ || !server.user) return;
  const std::string password = server.password ? server.password->text(call_options) : "";
  require_utf8(*server.user, shown_ + ": the user");
  require_utf8(password, shown_ + ": the password");
  logged_in_ = true;
  http_.set_authorization("");  // etcd 3.4 refuses a login that shows a token it does not know
  const std::vector<EtcdRequest> request{
      {login_path, {{"name", *server.user}, {"password", password}}}};
  try {
    const auto answers = ask(request, Repeat::yes, call_options);
    if (answers.front().code != EtcdCode::ok) refuse(answers.front());
    const std::string token = text_in(answers.front().fields, "token");
    if (token.size() > longest_token) {
      throw_unavailable(shown_ + ": a login token that is too large", Cause::other_reply);
    }
    http_.set_authorization(token);
  } catch (...) {
    logged_in_ = false;
    throw;
  }
}

std::vector<EtcdAnswer> EtcdClient::ask(const std::vector<EtcdRequest>& requests, Repeat repeat,
                                        const CallOptions& call_options) {
  const bool is_login = requests.front().path == login_path;
  log_in(call_options);
  bool new_login = false, each_refuses = true;
  for (std::size_t tries = 0;; ++tries) {
    CallOptions once = call_options;
    once.deadline = try_until(tries, call_options.deadline);
    auto answers = try_once(requests, repeat, once);
    if (answers) {
      const bool stale = std::any_of(answers->begin(), answers->end(), is_of_old_login);
      if (!stale || new_login || is_login) return std::move(*answers);
      new_login = true;
      logged_in_ = false;
      log_in(call_options);
      continue;
    }
    each_refuses = each_refuses && trouble_->kind() == ErrorKind::denied;
    const bool all_tried = tries + 1 >= servers_.size();
    if (BootClock::now() >= call_options.deadline || (all_tried && !is_electing_)) {
      // One that is away now may answer later.
      if (!each_refuses) throw_unavailable(trouble_->what(), trouble_->cause());
      throw Error(*trouble_);
    }
    if (!all_tried) continue;
    pause(pause_between_rounds, call_options);
  }
}

json EtcdClient::done(const EtcdRequest& request, Repeat repeat, const CallOptions& call_options) {
  auto answers = ask({request}, repeat, call_options);
  if (answers.front().code != EtcdCode::ok) refuse(answers.front());
  return std::move(answers.front().fields);
}

std::optional<json> EtcdClient::done_unless_large(const EtcdRequest& request,
                                                  const CallOptions& call_options) {
  was_too_large_ = false;
  try {
    return done(request, Repeat::yes, call_options);
  } catch (const Error& error) {
    if (!was_too_large_ || error.kind() != ErrorKind::unavailable) throw;
    return std::nullopt;
  }
}

void EtcdClient::open_stream(const std::string& path, const std::string& body) {
  stream_server_ = current_;
  http_.open_stream(address_of_request(path), body);
}

std::variant<std::string, HttpClient::StreamEnd> EtcdClient::next_line(Deadline until,
                                                                       int cancel_fd) {
  auto line = http_.next_line(until, cancel_fd);
  const auto* end = std::get_if<HttpClient::StreamEnd>(&line);
  if (end != nullptr && *end == HttpClient::StreamEnd::broken) {
    http_.close_stream();
    addresses_[stream_server_].reset();
    if (stream_server_ == current_) next_server();
  }
  return line;
}

}  // namespace dlock
