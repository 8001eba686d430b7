#include "support/zookeeper_servers.hpp"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/text.hpp"
#include "support/eventually.hpp"
#include "zookeeper/libzookeeper.hpp"
#include "zookeeper/zookeeper_survey.hpp"

namespace dlock::test {
namespace {

constexpr const char* java_program = "/usr/bin/java";
constexpr const char* server_library = "/usr/share/java/zookeeper.jar";

CallOptions in_time() { return {later(BootClock::now(), std::chrono::seconds(20)), -1}; }

/// The server's mode; empty if it does not answer (yet). A starting server may accept a connection
/// and never answer on it, so it is soon asked again.
std::string mode_of(const Endpoint& endpoint) {
  return ask_server(endpoint, {later(BootClock::now(), milliseconds(1000)), -1}).mode;
}

}  // namespace

bool ZooKeeperServers::is_installed() {
  return access(java_program, X_OK) == 0 && access(server_library, R_OK) == 0;
}

ZooKeeperServers::ZooKeeperServers(ZooKeeperOptions options)
    : Ensemble(options.servers), options_(std::move(options)) {
  client_.emplace(endpoints(), "zk", milliseconds(20'000));
  for (std::size_t i = 0; i < servers_.size(); ++i) start(i);
  await_service();
}

void ZooKeeperServers::start(std::size_t number) {
  const Server& server = servers_[number];
  {
    std::ofstream file(server.dir / "zoo.cfg");
    file << "dataDir=" << server.dir.path() << "\nclientPort=" << server.client_port.number()
         << "\nclientPortAddress=127.0.0.1\ntickTime=" << options_.tick.count()
         << "\nmaxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "initLimit=100\nsyncLimit=30\n4lw.commands.whitelist=srvr\n";
    for (std::size_t i = 0; i < servers_.size() && servers_.size() > 1; ++i) {
      file << "server." << i + 1 << "=127.0.0.1:" << servers_[i].peer_port.number() << ":"
           << servers_[i].election_port.number() << "\n";
    }
    for (const std::string& line : options_.lines) file << line << "\n";
    std::ofstream(server.dir / "myid") << number + 1 << "\n";
  }
  run(number, {java_program, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
               "-Dzookeeper.forceSync=no", "-cp",
               std::string(server_library) + ":/usr/share/java/slf4j-nop.jar",
               "org.apache.zookeeper.server.quorum.QuorumPeerMain", server.dir / "zoo.cfg"});
}

void ZooKeeperServers::wipe(std::size_t server) {
  std::filesystem::remove_all(servers_[server].dir / "version-2");
}

bool ZooKeeperServers::leads(std::size_t server) {
  const std::string mode = mode_of(endpoint(server));
  return mode == "leader" || mode == "standalone";
}

bool ZooKeeperServers::serves(std::size_t server) { return !mode_of(endpoint(server)).empty(); }

std::string ZooKeeperServers::url(const std::string& login) const {
  return "zk://" + login + addresses();
}

ZooKeeperReply ZooKeeperServers::ask(const ZooKeeperRequest& request) {
  Deadline sent{};
  auto reply = client_->ask_until_answered({request}, in_time(), sent).front();
  if (!reply.ok()) client_->refuse(reply.code, "ask for " + request.path);
  return reply;
}

std::vector<std::string> ZooKeeperServers::children(const std::string& path) {
  using Kind = ZooKeeperRequest::Kind;
  Deadline sent{};
  // A server may lag behind the leader, but not behind a write that it forwarded itself.
  const auto replies = client_->ask_until_answered(
      {{Kind::set, "/", "", {}}, {Kind::get_children, path, "", {}}}, in_time(), sent);
  for (const ZooKeeperReply& reply : replies) {
    // A node of an ending session may be gone since its parent was listed.
    if (!reply.ok() && reply.code != ZNONODE) client_->refuse(reply.code, "list " + path);
  }
  return replies.back().children;
}

std::vector<std::string> ZooKeeperServers::nodes(const std::string& path) {
  std::vector<std::string> all;
  for (const std::string& child : children(path)) {
    const std::string node = (path == "/" ? "" : path) + "/" + child;
    if (node == "/zookeeper") continue;
    all.push_back(node);
    const auto below = nodes(node);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

void ZooKeeperServers::clear() {
  const auto all = nodes();
  for (auto node = all.rbegin(); node != all.rend(); ++node) {
    Deadline sent{};
    // A node that has vanished by itself counts as removed, so the reply does not matter.
    client_->ask_until_answered(
        {{ZooKeeperRequest::Kind::multi, "", "", {{ZooKeeperChange::Kind::remove, *node}}}},
        in_time(), sent);
  }
}

}  // namespace dlock::test
