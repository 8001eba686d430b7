#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "support/process.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// Servers of etcd or ZooKeeper on ports of 127.0.0.1, which elect a leader; for one test.
class Ensemble {
 public:
  std::size_t size() const { return servers_.size(); }
  virtual Endpoint endpoint(std::size_t server) const;
  std::vector<Endpoint> endpoints() const;

  void kill_hard(std::size_t server);
  void stop(std::size_t server);
  void cont(std::size_t server);
  /// The index of the leader.
  std::size_t leader();
  /// Returns when every running server serves clients.
  void await_service();

 protected:
  struct Server {
    UnusedPort client_port{};
    UnusedPort peer_port{};
    UnusedPort election_port{};
    TempDir dir{};
    std::optional<Process> process{};
    bool stopped = false;
  };

  explicit Ensemble(int servers) : servers_(static_cast<std::size_t>(servers)) {}
  ~Ensemble() = default;

  virtual bool leads(std::size_t server) = 0;
  virtual bool serves(std::size_t server) = 0;
  /// Starts a server that does not run.
  void run(std::size_t server, const std::vector<std::string>& argv);
  /// `HOST:PORT,...` of all servers.
  std::string addresses() const;

  std::deque<Server> servers_;
};

/// Servers for all tests of a process, without data.
template <typename Servers>
Servers& cleared() {
  static Servers servers;
  servers.clear();
  return servers;
}

}  // namespace dlock::test
