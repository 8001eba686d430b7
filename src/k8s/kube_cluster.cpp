#include "base/error.hpp"
#include "base/process.hpp"
#include "base/program.hpp"
#include "base/text.hpp"
#include "k8s/kube_client.hpp"

namespace dlock {
namespace {

using nlohmann::json;

/// Where a pod finds its account
/// (https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/).
const std::string account = "/var/run/secrets/kubernetes.io/serviceaccount/";

json parsed(const std::string& text, const std::string& by) {
  json object = json::parse(text, nullptr, false);
  if (object.is_object()) return object;
  throw_usage(by + " printed no JSON object");
}

KubeCluster cluster_of_the_pod() {
  KubeCluster cluster;
  cluster.server = HttpServer::of_url("https://" + address_of(variable("KUBERNETES_SERVICE_HOST"),
                                                              variable("KUBERNETES_SERVICE_PORT")),
                                      "the cluster of KUBERNETES_SERVICE_HOST and _PORT");
  cluster.server.endpoint.tls->ca = account + "ca.crt";
  cluster.token_file = account + "token";
  cluster.name_space = line_in(account + "namespace");
  return cluster;
}

}  // namespace

KubeCluster cluster_in(const json& config) {
  KubeCluster cluster;
  const std::string user = "/users/0/user/";
  const auto pem = [&](const std::string& path) { return from_base64(text_at(config, path)); };
  cluster.server = HttpServer::of_url(text_at(config, "/clusters/0/cluster/server"),
                                      "the server of the cluster");
  if (cluster.server.endpoint.tls) {
    cluster.server.endpoint.tls = {pem("/clusters/0/cluster/certificate-authority-data"),
                                   pem(user + "client-certificate-data"),
                                   pem(user + "client-key-data"),
                                   text_at(config, "/clusters/0/cluster/tls-server-name")};
  }
  cluster.name_space = text_at(config, "/contexts/0/context/namespace");
  if (cluster.name_space.empty()) cluster.name_space = "default";
  cluster.token = text_at(config, user + "token");
  if (cluster.token.empty()) cluster.token_file = text_at(config, user + "tokenFile");
  const std::string program = text_at(config, user + "exec/command");
  if (program.empty()) return cluster;
  // The plugins expect this variable (client.authentication.k8s.io, "ExecCredential").
  const json info = {{"apiVersion", text_at(config, user + "exec/apiVersion")},
                     {"kind", "ExecCredential"},
                     {"spec", {{"interactive", false}}}};
  cluster.exec = {"env", "KUBERNETES_EXEC_INFO=" + info.dump()};
  const json& exec = config["users"][0]["user"]["exec"];
  for (const json& each : exec.value("env", json::array())) {
    cluster.exec.push_back(text_at(each, "/name") + "=" + text_at(each, "/value"));
  }
  cluster.exec.push_back(program);
  for (const json& each : exec.value("args", json::array())) {
    cluster.exec.push_back(each.get<std::string>());
  }
  return cluster;
}

KubeCluster find_cluster(const std::string& context, const CallOptions& call_options) {
  const bool in_pod = !variable("KUBERNETES_SERVICE_HOST").empty();
  if (in_pod && context.empty() && variable("KUBECONFIG").empty()) return cluster_of_the_pod();
  std::vector<std::string> argv{"kubectl",  "config",    "view", "--raw",
                                "--minify", "--flatten", "-o",   "json"};
  if (!context.empty()) argv.insert(argv.end(), {"--context", context});
  try {
    return cluster_in(parsed(output_of(argv, call_options), "kubectl config view"));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    throw_usage(std::string("which cluster? ") + error.what() +
                ": dlock runs in no pod, and asks kubectl for its configuration");
  }
}

void log_in(KubeCluster& cluster, const CallOptions& call_options) {
  if (!cluster.token_file.empty()) {
    cluster.token = line_in(cluster.token_file);
    if (!cluster.token.empty()) return;
    throw Error(ErrorKind::denied,
                "the token in " + escaped(cluster.token_file) + " is empty or cannot be read");
  }
  if (cluster.exec.empty()) return;
  try {
    const json answer = parsed(output_of(cluster.exec, call_options), "the program of the user");
    cluster.token = text_at(answer, "/status/token");
    const std::string certificate = text_at(answer, "/status/clientCertificateData");
    if (certificate.empty() || !cluster.server.endpoint.tls) return;
    cluster.server.endpoint.tls->certificate = certificate;
    cluster.server.endpoint.tls->key = text_at(answer, "/status/clientKeyData");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    throw Error(ErrorKind::denied, std::string("no credentials: ") + error.what());
  }
}

}  // namespace dlock
