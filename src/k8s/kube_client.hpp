#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/endpoint.hpp"
#include "base/wait.hpp"
#include "http/http_client.hpp"
#include "http/http_server.hpp"
#include "http/json_text.hpp"
#include "lock/grant.hpp"

namespace dlock {

/// The API server of a cluster, and how dlock logs in to it.
struct KubeCluster {
  HttpServer server{};              ///< its TLS settings have PEM texts in place of files' names
  std::string name_space{};         ///< the pod's, or the context's
  std::string token{};              ///< empty: none, or one of the next two
  std::string token_file{};         ///< read for each login: the cluster replaces the token
  std::vector<std::string> exec{};  ///< a program that prints an ExecCredential, and its arguments
};

/// The cluster of the pod that dlock runs in; elsewhere, or with KUBECONFIG or a `context`, the one
/// that kubectl would ask, whose configuration only kubectl itself reads. Throws Error{usage} if
/// there is neither.
KubeCluster find_cluster(const std::string& context, const CallOptions& call_options);

/// The cluster in the output of `kubectl config view --raw --minify --flatten -o json`.
KubeCluster cluster_in(const nlohmann::json& config);

/// Sets the token, and perhaps a certificate, for the next login, from the file or by the program.
/// Throws Error{denied} if there is none.
void log_in(KubeCluster& cluster, const CallOptions& call_options);

/// A request to the API server.
struct KubeRequest {
  std::string method;
  std::string path;  ///< below the server's URL
  nlohmann::json body = nullptr;
};

struct KubeAnswer {
  long status = 0;
  nlohmann::json object;
  /// 409: another client was faster.
  bool conflicts() const { return status == 409; }
  bool is_missing() const { return status == 404; }
};

/// A client of one API server. It finds the cluster and logs in at its first request, and again if
/// the server refuses the login. One thread uses it at a time.
class KubeClient {
 public:
  /// `context`: of kubectl's configuration; empty: the current one. `shown` is the name for people.
  KubeClient(std::string context, std::string shown)
      : context_(std::move(context)), shown_(std::move(shown)) {}
  /// A client of this cluster.
  KubeClient(KubeCluster cluster, std::string shown)
      : shown_(std::move(shown)), cluster_(std::move(cluster)) {}

  /// Finds the cluster, if that is still to be done. Throws as find_cluster() does.
  const KubeCluster& cluster(const CallOptions& call_options);
  /// Sends a request. A write is sent once: if it may have come, but has no answer, this throws
  /// Error{unavailable}. Every answer but success, 404 and 409 is an Error.
  KubeAnswer ask(const KubeRequest& request, const CallOptions& call_options);

  /// Opens a stream of events in place of the previous one.
  void open_stream(const std::string& path, const CallOptions& call_options);
  bool has_stream() const { return http_ != nullptr && http_->has_stream(); }
  void close_stream() { http_->close_stream(); }
  auto next_line(Deadline until, int cancel_fd) { return http_->next_line(until, cancel_fd); }
  /// Throws the Error that an answer with this status, or the last event of a stream, means.
  [[noreturn]] void refuse(long status, const nlohmann::json& object) const;

  /// The server's clock in its last answer, and a time before that request.
  const std::optional<DatedAnswer>& last_clock() const { return clock_; }
  void close() { http_.reset(); }
  const std::string& name() const { return shown_; }

 private:
  void prepare(const CallOptions& call_options);
  HttpCall call_for(const KubeRequest& request, const CallOptions& call_options);
  HttpCall answered(const KubeRequest& request, const CallOptions& call_options);

  std::string context_;
  std::string shown_;
  std::optional<KubeCluster> cluster_;
  std::unique_ptr<HttpClient> http_;
  bool logged_in_ = false;
  std::optional<DatedAnswer> clock_;
};

}  // namespace dlock
