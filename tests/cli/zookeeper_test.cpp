#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <list>
#include <optional>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/loop_thread.hpp"
#include "support/zookeeper_servers.hpp"

// Locks in ZooKeeper with one and three servers, as users of dlock see them, and their faults.

namespace dlock::test {
namespace {

TEST_CASE("zookeeper: locks, latches and guards live there, and fences count its changes") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers& zookeeper = cleared<ZooKeeperServers>();
  const std::string url = zookeeper.url();
  const auto fence = [&] {
    const auto ran = dlock_at(url, {"run", "-k", "a", "--", "sh", "-c", "echo $DLOCK_FENCE"});
    return std::stoll(ran.out);
  };
  const auto one = fence(), two = fence();
  CHECK(one > 0);
  CHECK(two > one);
  CHECK(two < 100'000'000'000);
  // A free key leaves one node, which names its last holder, and a child of that node.
  CHECK(zookeeper.nodes().size() == 4);
  check_all_commands_at(url);
}

TEST_CASE("zookeeper: a hold outlives its session, and its next renewal puts its child back") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers& zookeeper = cleared<ZooKeeperServers>();
  const auto child = [&] {
    const auto nodes = zookeeper.nodes("/dlock");
    const auto found = std::find_if(nodes.begin(), nodes.end(), [](const auto& node) {
      return node.find("/k:a/b-") != std::string::npos;
    });
    return found == nodes.end() ? std::string() : *found;
  };
  CommandInside holder(zookeeper.url(), {"-t", "12s"});
  REQUIRE(eventually([&] { return !child().empty(); }));
  zookeeper.ask(
      {ZooKeeperRequest::Kind::multi, "", "", {{ZooKeeperChange::Kind::remove, child()}}});
  CHECK(dlock_at(zookeeper.url(), {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(eventually([&] { return !child().empty(); }));
  CHECK(holder.process.running());
  holder.end();
  CHECK(holder.process.wait().exit_code == 0);
}

TEST_CASE(
    "zookeeper: a deployment that stood still does not run after a newer one that has ended") {
  if (is_missing<ZooKeeperServers>()) return;
  const std::string url = cleared<ZooKeeperServers>().url();
  CommandInside present(url);
  const auto deploy = [&](const std::string& word) {
    return queued_at(url, 1, {"--latest", "-t", "9s", "--", "echo", word});
  };
  Process older = deploy("1");
  older.signal(SIGSTOP);
  // Its session ends, and so does its place in the queue.
  REQUIRE(eventually([&] { return waiters(url) == 0; }, milliseconds(60'000)));
  Process newer = deploy("2");
  present.end();
  CHECK(newer.wait(milliseconds(90'000)).out == "2\n");
  older.signal(SIGCONT);
  const auto late = older.wait(milliseconds(90'000));
  CHECK(late.exit_code == 75);
  CHECK(late.out == "");
}

TEST_CASE("zookeeper: a job keeps its lock while the leader is killed, and another elected") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers zookeeper({.servers = 3, .tick = milliseconds(200)});
  check_lock_outlives_leader(zookeeper, zookeeper.url());
}

TEST_CASE("zookeeper: a holder that is left with a minority stops its command in time") {
  if (is_missing<ZooKeeperServers>()) return;
  // On a busy machine, a renewal may just be late, but not every time.
  CHECK(in_one_of(3, [] {
    ZooKeeperServers zookeeper({.servers = 3, .tick = milliseconds(200)});
    return holder_tries_alone(zookeeper, zookeeper.url());
  }));
}

TEST_CASE("zookeeper: the command inherits no descriptor of dlock's, also after dead servers") {
  if (is_missing<ZooKeeperServers>()) return;
  std::string url = cleared<ZooKeeperServers>().url();
  url.insert(url.find("://") + 3, "127.0.0.1:1,127.0.0.1:2,");
  const std::vector<std::string> count{"run", "-q", "-k", "a", "--", "sh", "-c", "ls /proc/$$/fd"};
  CHECK(dlock_at(url, count).out == dlock_at("local:", count).out);
}

}  // namespace

namespace {

using Kind = ZooKeeperRequest::Kind;

ZooKeeperRequest creation_of(const std::string& path) {
  return {Kind::multi, "", "", {{ZooKeeperChange::Kind::create, path}}};
}

Fd listen_at_second_address(int port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(fd.get(), 16) == 0);
  return fd;
}

/// Makes a server on a port of 127.0.0.1 reachable on the same port of 127.0.0.2, until destroyed.
class SecondAddress {
 public:
  explicit SecondAddress(int port)
      : server_{"", port},
        listener_(listen_at_second_address(port)),
        thread_([this](std::vector<pollfd>& fds) { return watch(fds); }, [this] { tick(); }) {}

 private:
  struct Link {
    Fd client;
    Fd server;
  };

  Deadline watch(std::vector<pollfd>& fds) const {
    fds.push_back({listener_.get(), POLLIN, 0});
    for (const Link& link : links_) {
      fds.push_back({link.client.get(), POLLIN, 0});
      fds.push_back({link.server.get(), POLLIN, 0});
    }
    return never;
  }

  void tick() {
    while (readable(listener_.get())) {
      Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) break;
      links_.push_back({std::move(client), connect_to(server_)});
    }
    links_.remove_if([](const Link& link) {
      return !pass_on(link.client, link.server) || !pass_on(link.server, link.client);
    });
  }

  /// Returns false at the end of the stream.
  static bool pass_on(const Fd& from, const Fd& to) {
    while (readable(from.get())) {
      char block[4096];
      const ssize_t n = recv(from.get(), block, sizeof block, 0);
      if (n <= 0 || !send_all(to.get(), {block, static_cast<std::size_t>(n)})) return false;
    }
    return true;
  }

  Address server_;
  Fd listener_;
  std::list<Link> links_;
  LoopThread thread_;  ///< last, as the thread uses all members above
};

TEST_CASE("zookeeper: nobody there, or another product, is one line and 69") {
  if (is_missing<ZooKeeperServers>()) return;
  const auto nobody = run_at("zk://u:pw-of-it@127.0.0.1:1,127.0.0.1:2");
  check_message(nobody, 69, "zk://127.0.0.1:1,127.0.0.1:2: ");
  CHECK(!holds(nobody.err, "pw-of-it"));
  const RedisServer redis({.tcp = true});
  check_message(run_at("zk://127.0.0.1:" + std::to_string(redis.port())), 69, "is it a ZooKeeper");
}

TEST_CASE("zookeeper: a server at its limit of connections for this host is named as such, 69") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers zookeeper({.lines = {"maxClientCnxns=1"}});
  zookeeper.nodes();  // with the one connection, which stays
  const auto refused =
      dlock_at(zookeeper.url(), {"run", "-n", "-t", "6s", "-k", "a", "--", "true"});
  check_message(refused, 69,
                "dlock: a: " + zookeeper.url() + ": the server closes each connection");
  CHECK(holds(refused.err, "maxClientCnxns"));
}

TEST_CASE("zookeeper: without its client library, run and doctor name the package, 71") {
  if (is_missing<ZooKeeperServers>()) return;
  const TempDir dir;
  write_file(dir / "libzookeeper_st.so.2", "");
  ProcessOptions options = at(cleared<ZooKeeperServers>().url());
  options.env["LD_LIBRARY_PATH"] = dir.path();
  for (const auto& words : {std::vector<std::string>{"run", "-k", "a", "--", "true"},
                            std::vector<std::string>{"doctor"}}) {
    check_message(dlock(words, options), 71, "package libzookeeper-st2");
  }
}

TEST_CASE("zookeeper: a URL that cannot be meant is refused before anything is asked") {
  const auto refused = [](const std::string& url, const std::string& why) {
    CAPTURE(url);
    const auto result = run_at(url);
    CHECK(result.exit_code == 64);
    CHECK(is_one_message(result.err));
    CHECK(holds(result.err, why));
  };
  refused("zks://127.0.0.1", "without TLS");
  refused("zk://127.0.0.1/a//b", "cannot be the name of a node");
  refused("zk://127.0.0.1/a/../b", "cannot be the name of a node");
  refused("zk://:pw@127.0.0.1", "a password without a user");
  refused("zk://u@127.0.0.1", "a user without a password");
  refused("zk://127.0.0.1,127.0.0.1", "named twice");
}

TEST_CASE("zookeeper: a chroot must be there, and what is below it is dlock's alone") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers& zookeeper = cleared<ZooKeeperServers>();
  check_message(run_at(zookeeper.url() + "/app"), 69, "there is no node /app");
  zookeeper.ask(creation_of("/app"));
  CHECK(run_at(zookeeper.url() + "/app").exit_code == 0);
  for (const std::string& node : zookeeper.nodes()) CHECK(node.starts_with("/app"));
}

TEST_CASE("zookeeper: a user's nodes are closed to others, and a password elsewhere is warned of") {
  if (is_missing<ZooKeeperServers>()) return;
  // Only one user may remove its nodes.
  ZooKeeperServers zookeeper;
  const std::string pw = password;
  CHECK(run_at(zookeeper.url("app:" + pw + "@")).exit_code == 0);
  for (const std::string login : {"", "app:wrong-one@", "other:x@"}) {
    const auto refused = run_at(zookeeper.url(login));
    check_message(refused, 77);
    CHECK(!holds(refused.err, pw));
    CHECK(holds(refused.err, "password is wrong") == !login.empty());
  }
  CHECK(run_at(zookeeper.url("app:" + pw + "@")).exit_code == 0);
  CHECK(holds(dlock_at(zookeeper.url("app:x@"), {"doctor", "--acl"}).out, "addauth digest app:"));
  const auto far = dlock({"run", "-n", "-t", "600ms", "-k", "a", "--", "true"},
                         at("zk://u:pw-of-it@nowhere.invalid"));
  CHECK(holds(far.err, "the password goes to nowhere.invalid:2181 in plain text"));
  CHECK(!holds(far.err, "pw-of-it"));
}

TEST_CASE(
    "zookeeper: doctor tells the version, tries a lock, and says what locks there are worth") {
  if (is_missing<ZooKeeperServers>()) return;
  const std::string url = cleared<ZooKeeperServers>().url();
  Result alone;
  // The doctor reports one stall of a busy machine as a slow server, but a machine does not stall
  // every time.
  CHECK(eventually([&] {
    alone = doctor_at(url);
    return holds(finding(alone, "lock"), "ok acquired");
  }));
  CAPTURE(finding(alone, "lock"));
  CHECK(holds(finding(alone, "engine"), "ok ZooKeeper 3."));
  CHECK(holds(finding(alone, "label"), "as safe as its disk"));
}

TEST_CASE("zookeeper: a host that no resolver answers for leaves the others their time") {
  if (is_missing<ZooKeeperServers>()) return;
  const std::string port = ":" + std::to_string(cleared<ZooKeeperServers>().endpoint(0).port);
  const auto lock_at = [&](const std::string& hosts) {
    return dlock({"run", "-k", "a", "--", "true"}, at_test_names("zk://" + hosts));
  };
  CHECK(lock_at("silent.100000.test" + port + ",db.1.test" + port).exit_code == 0);
  CHECK(lock_at("gone.1.none.test" + port + ",db.1.test" + port).exit_code == 0);
  check_given_up(lock_at("silent.100000.test" + port));
}

TEST_CASE("zookeeper: a holder follows its servers to other addresses, and keeps its lock") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers& zookeeper = cleared<ZooKeeperServers>();
  const int port = zookeeper.endpoint(0).port;
  std::optional<SecondAddress> old_address(std::in_place, port);
  const TempDir dir;
  write_file(dir / "address", "127.0.0.2");
  ProcessOptions options = at_test_names("zk://moved.test:" + std::to_string(port));
  options.env["NAMES_SHIM_ADDRESS"] = dir / "address";
  CommandInside holder(options, {"-t", "12s"});
  const auto version = [&] { return zookeeper.ask({Kind::get, "/dlock/k:a", "", {}}).version; };
  write_file(dir / "address", "127.0.0.1");
  old_address.reset();
  const auto before = version();
  // One renewal may have been in flight.
  CHECK(eventually([&] { return version() > before + 1; }));
  holder.end();
  CHECK(holder.process.wait().exit_code == 0);
}

}  // namespace

}  // namespace dlock::test
