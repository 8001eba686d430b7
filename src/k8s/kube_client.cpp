#include "k8s/kube_client.hpp"

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

using nlohmann::json;

constexpr long unauthorized = 401, forbidden = 403;
constexpr long too_many_requests = 429, first_of_the_server = 500;

}  // namespace

const KubeCluster& KubeClient::cluster(const CallOptions& call_options) {
  if (!cluster_) cluster_ = find_cluster(context_, call_options);
  return *cluster_;
}

/// Connects with the login that is valid now.
void KubeClient::prepare(const CallOptions& call_options) {
  cluster(call_options);
  if (!logged_in_) {
    log_in(*cluster_, call_options);
    http_.reset();
    logged_in_ = true;
  }
  if (http_ != nullptr) return;
  http_ = std::make_unique<HttpClient>(cluster_->server.endpoint.tls);
  if (!cluster_->token.empty()) http_->set_authorization("Bearer " + cluster_->token);
}

HttpCall KubeClient::call_for(const KubeRequest& request, const CallOptions& call_options) {
  HttpCall call;
  cluster_->server.look_up(call_options);
  call.to = cluster_->server.at(request.path);
  call.method = request.method;
  if (!request.body.is_null()) call.body = request.body.dump();
  call.once = request.method != "GET";
  return call;
}

HttpCall KubeClient::answered(const KubeRequest& request, const CallOptions& call_options) {
  prepare(call_options);
  std::vector<HttpCall> calls{call_for(request, call_options)};
  const Deadline sent = BootClock::now();
  http_->send(calls, call_options);
  const HttpCall& call = calls.front();
  if (call.end != HttpCall::End::answered) {
    cluster_->server.resolved.clear();
    throw call.no_answer(shown_ + ": " + cluster_->server.name());
  }
  if (const auto date = call.date()) clock_ = DatedAnswer{sent, *date};
  return std::move(calls.front());
}

KubeAnswer KubeClient::ask(const KubeRequest& request, const CallOptions& call_options) {
  HttpCall call = answered(request, call_options);
  if (call.status == unauthorized) {
    // The token has been replaced, or has expired.
    logged_in_ = false;
    call = answered(request, call_options);
  }
  KubeAnswer answer{call.status, json::parse(call.answer, nullptr, false)};
  const bool is_answer =
      (call.status >= 200 && call.status < 300) || answer.is_missing() || answer.conflicts();
  if (!is_answer || !answer.object.is_object()) refuse(call.status, answer.object);
  if (!clock_) throw_unavailable(shown_ + ": its answers have no Date, and dlock needs its clock");
  return answer;
}

void KubeClient::refuse(long status, const json& object) const {
  std::string said = escaped(text_at(object, "/message"));
  if (said.empty()) said = "it answers " + std::to_string(status) + ", and no object of Kubernetes";
  said = shown_ + ": " + said;
  if (status == unauthorized) {
    throw Error(ErrorKind::denied, said + ": the token or certificate is not valid, or has expired",
                Cause::password_wrong);
  }
  if (status == forbidden) {
    throw Error(ErrorKind::denied, said + ": `dlock doctor --acl` prints the Role that allows it",
                Cause::acl);
  }
  const bool later = status == too_many_requests || status >= first_of_the_server;
  throw_unavailable(said, later ? Cause::busy : Cause::other_reply);
}

void KubeClient::open_stream(const std::string& path, const CallOptions& call_options) {
  prepare(call_options);
  http_->open_stream(call_for({"GET", path}, call_options));
}

}  // namespace dlock
