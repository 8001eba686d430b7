#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "support/process.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"
#include "zookeeper/zookeeper_client.hpp"

namespace dlock::test {

struct ZooKeeperOptions {
  int servers = 1;
  /// The shortest session that they grant is twice that.
  milliseconds tick{100};
  std::vector<std::string> lines{};  ///< further ones of zoo.cfg
};

/// A ZooKeeper of the test's own, of one or more servers on ports of 127.0.0.1; it gives sessions
/// when constructed, and is gone when destroyed.
class ZooKeeperServers {
 public:
  /// Whether this machine has one.
  static constexpr const char* package = "zookeeper";  ///< of Debian
  static bool is_installed();

  explicit ZooKeeperServers(ZooKeeperOptions options = {});

  /// What dlock is given; `login` is `USER:PASSWORD@`.
  std::string url(const std::string& login = {}) const;
  std::vector<Endpoint> endpoints() const;
  Endpoint endpoint(std::size_t server) const;
  std::size_t size() const { return servers_.size(); }

  void kill_hard(std::size_t server);
  /// Starts one that was killed, with what it has stored.
  void start(std::size_t server);
  /// Removes what one that was killed has stored.
  void wipe(std::size_t server);
  void stop(std::size_t server);
  void cont(std::size_t server);
  /// The server that leads.
  std::size_t leader();
  /// Returns when every server that runs gives sessions.
  void await_service();

  /// The paths of all nodes below `path`, parents first.
  std::vector<std::string> nodes(const std::string& path = "/");
  /// Asks any server, and must succeed.
  ZooKeeperReply ask(const ZooKeeperRequest& request);
  /// Removes all nodes.
  void clear();

 private:
  struct Server {
    UnusedPort client_port{};
    UnusedPort peer_port{};
    UnusedPort election_port{};
    TempDir dir{};
    std::optional<Process> process{};
    bool stopped = false;
  };

  std::vector<std::string> children(const std::string& path);

  ZooKeeperOptions options_;
  std::deque<Server> servers_;
  std::optional<ZooKeeperClient> client_;
};

}  // namespace dlock::test
