#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "k8s/kube_client.hpp"
#include "support/etcd_servers.hpp"
#include "support/process.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {

/// API servers of Kubernetes on one etcd, on ports of 127.0.0.1, for one test: only what
/// `kubectl get leases` needs. `admin` and `worker` may do everything, `reader` may only read
/// leases in the namespace `default`, and `nobody` may do nothing; the token of each is its name.
class KubeServers {
 public:
  static constexpr const char* package = "kube-apiserver (scripts/cloud-servers)";
  static bool is_installed();

  explicit KubeServers(int servers = 1);

  int port(std::size_t server = 0) const { return servers_[server].port.number(); }
  /// The environment in which dlock finds the server: a kubectl that prints a configuration.
  std::map<std::string, std::string> environment(const std::string& user = "admin",
                                                 std::size_t server = 0);
  /// A configuration of kubectl for the server at `port`, in JSON.
  nlohmann::json config(const std::string& user, int port) const;
  /// The same as a file; returns the environment in which kubectl prints it.
  std::map<std::string, std::string> environment_with(const nlohmann::json& config);

  void kill_hard(std::size_t server = 0) { servers_[server].process->kill_hard(); }
  void stop(std::size_t server = 0) { servers_[server].process->stop(); }
  void cont(std::size_t server = 0);
  /// Starts one that was killed, on the same port.
  void start(std::size_t server = 0);
  void await_service();

  /// Sends a request as admin.
  KubeAnswer ask(const KubeRequest& request);
  /// The Leases of dlock.
  std::vector<nlohmann::json> leases();
  /// Removes all Leases.
  void clear();
  /// The verbs of the requests for Leases that `worker` has sent since the last call, in order.
  std::vector<std::string> take_requests();

 private:
  struct Server {
    UnusedPort port{};
    std::optional<Process> process{};
  };

  TempDir dir_;
  TestCa ca_;
  Certificate certificate_;
  EtcdServers etcd_{};
  std::deque<Server> servers_;
  int configurations_ = 0;
  std::size_t requests_taken_ = 0;
};

}  // namespace dlock::test
