#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "base/wait.hpp"

namespace dlock {

/// The API server of a cluster, and how dlock logs in to it.
struct KubeCluster {
  bool encrypted = true;
  std::string host;
  int port = 443;
  std::string path{};               ///< before that of the API; empty, or begins with a slash
  TlsSettings tls{};                ///< with PEM texts; `certificate`: the client's, if it has one
  std::string name_space{};         ///< the pod's, or the context's
  std::string token{};              ///< empty: none, or one of the next two
  std::string token_file{};         ///< read for each login: the cluster replaces the token
  std::vector<std::string> exec{};  ///< a program that prints an ExecCredential, and its arguments
  std::vector<std::string> exec_environment{};  ///< `NAME=VALUE`

  /// `https://HOST:PORT/PATH`, for people.
  std::string url() const;
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

/// The text at a path such as `/metadata/name`; empty if there is none.
std::string text_at(const nlohmann::json& object, const std::string& path);

}  // namespace dlock
