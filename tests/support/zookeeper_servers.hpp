#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "support/ensemble.hpp"
#include "zookeeper/zookeeper_client.hpp"

namespace dlock::test {

struct ZooKeeperOptions {
  int servers = 1;
  /// The shortest session that the servers grant is twice that.
  milliseconds tick{100};
  std::vector<std::string> lines{};  ///< further lines of zoo.cfg
};

/// A ZooKeeper of one or more servers on ports of 127.0.0.1, for one test. It accepts sessions when
/// constructed; the destructor removes it.
class ZooKeeperServers final : public Ensemble {
 public:
  /// Whether this machine has ZooKeeper installed.
  static constexpr const char* package = "zookeeper";  ///< in Debian
  static bool is_installed();

  explicit ZooKeeperServers(ZooKeeperOptions options = {});

  /// The URL for dlock; `login` is `USER:PASSWORD@`.
  std::string url(const std::string& login = {}) const;

  /// Restarts a killed server with its data.
  void start(std::size_t server);
  /// Removes the data of a killed server.
  void wipe(std::size_t server);

  /// The paths of all nodes below `path`, parents first.
  std::vector<std::string> nodes(const std::string& path = "/");
  /// Sends a request to any server; Error if it fails.
  ZooKeeperReply ask(const ZooKeeperRequest& request);
  /// Removes all nodes.
  void clear();

 private:
  bool leads(std::size_t server) override;
  bool serves(std::size_t server) override;
  std::vector<std::string> children(const std::string& path);

  ZooKeeperOptions options_;
  std::optional<ZooKeeperClient> client_;
};

}  // namespace dlock::test
