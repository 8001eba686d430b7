#include "support/kube_servers.hpp"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

using nlohmann::json;

constexpr const char* kube_apiserver = DLOCK_CLOUD_SERVERS "/kube-apiserver";
constexpr const char* leases_path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
constexpr const char* roles_path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/";

CallOptions in_time() { return {later(BootClock::now(), std::chrono::seconds(20)), -1}; }

}  // namespace

bool KubeServers::is_installed() {
  return access(kube_apiserver, X_OK) == 0 && EtcdServers::is_installed();
}

KubeServers::KubeServers(int servers)
    : certificate_(ca_.issue("kube-apiserver")), servers_(static_cast<std::size_t>(servers)) {
  write_file(dir_ / "tokens",
             "admin,admin,1,system:masters\nworker,worker,4,system:masters\nreader,reader,"
             "2\nnobody,nobody,3\n");
  write_file(dir_ / "audit", R"({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
      {"level": "Metadata", "users": ["worker"], "omitStages": ["RequestReceived"]}]})");
  for (std::size_t i = 0; i < servers_.size(); ++i) start(i);
  await_service();
  ask({"POST",
       std::string(roles_path) + "roles",
       {{"metadata", {{"name", "reader"}}},
        {"rules",
         {{{"apiGroups", {"coordination.k8s.io"}},
           {"resources", {"leases"}},
           {"verbs", {"get", "list", "watch"}}}}}}});
  ask({"POST",
       std::string(roles_path) + "rolebindings",
       {{"metadata", {{"name", "reader"}}},
        {"roleRef",
         {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "Role"}, {"name", "reader"}}},
        {"subjects",
         {{{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "User"}, {"name", "reader"}}}}}});
}

void KubeServers::start(std::size_t server) {
  const std::string key = certificate_.key;
  const std::vector<std::string> argv{kube_apiserver,
                                      "--etcd-servers=http://" + etcd_.endpoint(0).address(),
                                      "--bind-address=127.0.0.1",
                                      "--secure-port=" + std::to_string(port(server)),
                                      "--tls-cert-file=" + certificate_.file,
                                      "--tls-private-key-file=" + key,
                                      "--token-auth-file=" + (dir_ / "tokens"),
                                      "--authorization-mode=RBAC",
                                      "--service-account-issuer=https://127.0.0.1",
                                      "--service-account-key-file=" + certificate_.file,
                                      "--service-account-signing-key-file=" + key,
                                      "--service-cluster-ip-range=10.0.0.0/24",
                                      "--disable-admission-plugins=ServiceAccount",
                                      "--endpoint-reconciler-type=none",
                                      "--anonymous-auth=false",
                                      "--profiling=false",
                                      "--audit-policy-file=" + (dir_ / "audit"),
                                      "--audit-log-path=" + (dir_ / "requests"),
                                      "--shutdown-delay-duration=0"};
  servers_[server].process.emplace(argv, ProcessOptions{.merge = true});
}

void KubeServers::cont(std::size_t server) { servers_[server].process->signal(SIGCONT); }

void KubeServers::await_service() {
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    KubeClient client(cluster_in(config("admin", port(i))), "k8s://of-the-test");
    const auto serves = [&] {
      return without_error([&] {
        return !client.ask({"GET", "/api/v1/namespaces/default"}, in_time()).is_missing();
      });
    };
    if (!eventually(serves, time_to_come_up)) {
      throw Error(ErrorKind::host_refused,
                  "kube-apiserver did not come up: " + servers_[i].process->out());
    }
  }
}

json KubeServers::config(const std::string& user, int port) const {
  const std::string url = "https://127.0.0.1:" + std::to_string(port);
  return {
      {"kind", "Config"},
      {"apiVersion", "v1"},
      {"current-context", "test"},
      {"clusters",
       {{{"name", "test"},
         {"cluster",
          {{"server", url}, {"certificate-authority-data", to_base64(file_text(ca_.file()))}}}}}},
      {"contexts",
       {{{"name", "test"},
         {"context", {{"cluster", "test"}, {"user", user}, {"namespace", "default"}}}}}},
      {"users", {{{"name", user}, {"user", {{"token", user}}}}}}};
}

std::map<std::string, std::string> KubeServers::environment_with(const json& config) {
  const std::string folder = dir_ / std::to_string(configurations_++);
  std::filesystem::create_directory(folder);
  write_file(folder + "/config", config.dump());
  write_file(folder + "/kubectl", "#!/bin/sh\nexec cat \"$KUBECONFIG\"\n");
  std::filesystem::permissions(folder + "/kubectl", std::filesystem::perms::owner_all);
  return {{"PATH", folder + ":" + getenv("PATH")}, {"KUBECONFIG", folder + "/config"}};
}

std::map<std::string, std::string> KubeServers::environment(const std::string& user,
                                                            std::size_t server) {
  return environment_with(config(user, port(server)));
}

KubeAnswer KubeServers::ask(const KubeRequest& request) {
  KubeClient client(cluster_in(config("admin", port())), "k8s://of-the-test");
  return client.ask(request, in_time());
}

std::vector<json> KubeServers::leases() {
  const json items = ask({"GET", leases_path}).object.at("items");
  return {items.begin(), items.end()};
}

std::vector<std::string> KubeServers::take_requests() {
  const std::string log = file_text(dir_ / "requests");
  std::string_view rest = std::string_view(log).substr(std::min(requests_taken_, log.size()));
  requests_taken_ = log.size();
  std::vector<std::string> verbs;
  while (!rest.empty()) {
    const json request = json::parse(take_until(rest, '\n'), nullptr, false);
    // A watch is logged when it begins and again when it ends.
    if (text_at(request, "/stage") == "ResponseComplete")
      verbs.push_back(text_at(request, "/verb"));
  }
  return verbs;
}

void KubeServers::clear() { ask({"DELETE", leases_path}); }

}  // namespace dlock::test
