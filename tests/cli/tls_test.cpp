#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "cli/line.hpp"
#include "cli/place.hpp"
#include "support/fault_proxy.hpp"
#include "support/scene.hpp"
#include "support/tls_files.hpp"

// TLS with the real binary: all features work as they do without. Of Sentinel and a Cluster
// every server has to prove its identity, no matter which server named it.

namespace dlock::test {
namespace {

/// `openssl s_server` on its own port: it prints the decrypted input, and sends what the test
/// types.
class TalkingServer {
 public:
  TalkingServer(const Certificate& own, const std::vector<std::string>& flags) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    to_server_ = Fd(ends[1]);
    const Fd input(ends[0]);
    std::vector<std::string> words{"openssl", "s_server", "-accept", "127.0.0.1:0",
                                   "-cert",   own.file,   "-key",    own.key};
    words.insert(words.end(), flags.begin(), flags.end());
    const ProcessOptions options{.stdin_fd = input.get(), .merge = true};
    process_.emplace(words, options);
    const bool up = eventually([&] { return holds(process_->out(), "\nACCEPT 127.0.0.1:"); });
    if (!up) throw Error(ErrorKind::bug, "s_server: " + process_->out());
  }

  std::string url() const {
    const std::string out = process_->out();
    const auto at = out.find("\nACCEPT ") + std::string("\nACCEPT ").size();
    return "rediss://" + out.substr(at, out.find('\n', at) - at);
  }
  std::string told() const { return process_->out(); }
  void type(const std::string& line) {
    REQUIRE(write(to_server_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  }

 private:
  Fd to_server_;
  std::optional<Process> process_;
};

/// Locks on a server with TLS.
class TlsScene final : public Scene {
 public:
  std::string url() const override { return redis.url(); }
  std::map<std::string, std::string> settings() const override {
    return {{"DLOCK_TLS_CA", redis.ca.file()}};
  }
  std::string kept() const override { return ""; }
  std::string may_stay(std::vector<std::string>) const override { return ""; }

  TlsRedis redis;
};

}  // namespace

TEST_CASE("tls: a lock is taken, waited for in order, renewed, shown and given back") {
  const TlsScene scene;
  auto holder = scene.hold("a", "go", {"-t", "12s"});
  std::vector<Process> waiters;
  for (std::size_t i = 1; i <= 3; ++i) {
    waiters.push_back(
        scene.queue_up("a", i, "\"$STAMP\" \"$LOG\" start a $i; \"$STAMP\" \"$LOG\" end a $i"));
  }
  const RedisScene plain;
  const auto without_tls = plain.hold("a", "go");
  const auto maps_of = [](const Process& process) {
    return read_file("/proc/" + std::to_string(process.pid()) + "/maps");
  };
  CHECK(holds(maps_of(holder), "libssl"));
  CHECK(!holds(maps_of(without_tls), "libssl"));
  CHECK(!holds(maps_of(without_tls), "libcrypto"));

  CHECK(scene.run({"acquire", "a", "-t", "1m", "-w", "0"}).exit_code == 75);
  await_renewal(scene.redis.server, "a");
  CHECK(scene.is_held("a"));
  CHECK(holder.running());
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  for (Process& waiter : waiters) CHECK(waiter.wait().exit_code == 0);
  CHECK(order_of(scene.log()) == first_numbers(3));

  const auto got = scene.run({"acquire", "a", "-t", "1m"});
  REQUIRE(got.exit_code == 0);
  const std::string token = got.out.substr(0, got.out.find('\n'));
  CHECK(scene.run({"renew", "a", "--token", token}).exit_code == 0);
  CHECK(scene.run({"release", "a", "--token", token}).exit_code == 0);
  CHECK(!scene.is_held("a"));
}

TEST_CASE(
    "tls: the keeper of acquire --attach has the connection, and the one who forked it goes") {
  const TlsScene scene;
  auto script = patient_start(
      [&] {
        return scene.start_shell(
            "\"$DLOCK\" acquire a -t 6s --attach $$ && echo >in && exec sleep 60");
      },
      [&] { return scene.has("in"); }, "not acquired");
  const auto keepers = keepers_of(script.pid());
  CHECK(keepers.size() == 1);
  await_renewal(scene.redis.server, "a");
  CHECK(scene.is_held("a"));
  CHECK(end_script(script));
  CHECK(!scene.is_held("a"));
}

TEST_CASE("tls: a password goes to a server that has proved itself, and to no other") {
  const TestCa ca;
  ProcessOptions options{.env = {{"DLOCK_TLS_CA", ca.file()}, {"DLOCK_PASSWORD", "opensesame"}}};
  for (const bool proved : {true, false}) {
    CAPTURE(proved);
    for (const char* version : {"-tls1_3", "-tls1_2"}) {
      TalkingServer server(proved ? ca.issue("good") : ca.self_signed("bad"), {version});
      options.env["DLOCK_SERVER"] = server.url();
      auto client = start_dlock({"run", "-k", "a", "-t", "30s", "--", "true"}, options);
      CHECK(client.wait().exit_code == (proved ? 69 : 77));
      // s_server prints the decrypted data before it sees the end of the connection.
      const auto told = [&] { return holds(server.told(), "opensesame"); };
      CHECK((proved ? eventually(told) : told()) == proved);
    }
  }
}

TEST_CASE("tls: new keys in the middle are taken, and a renegotiation is declined") {
  const TestCa ca;
  const auto own = ca.issue("server");
  struct Wish {
    const char* version;
    const char* key;
    const char* sent;
    const char* says;
  };
  const Wish wishes[] = {{"-tls1_3", "K\n", "KeyUpdate", "ERR after the change"},
                         {"-tls1_3", "k\n", "KeyUpdate", "ERR after the change"},
                         {"-tls1_2", "r\n", "HelloRequest", "the server broke TLS off"}};
  for (const Wish& wish : wishes) {
    CAPTURE(std::string(wish.key));
    TalkingServer server(own, {wish.version, "-crlf", "-msg"});
    auto client =
        start_dlock({"renew", "a", "--token", "t"},
                    {.env = {{"DLOCK_SERVER", server.url()}, {"DLOCK_TLS_CA", ca.file()}}});
    CHECK(eventually([&] { return holds(server.told(), "EVALSHA") || !client.running(); }));
    server.type(wish.key);
    CHECK(eventually([&] { return holds(server.told(), wish.sent); }));
    // A client whose request is declined may end the connection, so the server then sends nothing.
    if (wish.version == std::string("-tls1_3")) server.type("+OK\n-ERR after the change\n");
    check_says(client.wait(), 69, wish.says);
  }
}

namespace {

std::vector<std::string> certificate_of(const TlsRedis& redis) {
  return {"tls-cert-file " + redis.own.file, "tls-key-file " + redis.own.key,
          "tls-ca-cert-file " + redis.ca.file(), "tls-auth-clients no"};
}

/// A sentinel with TLS and the certificate of `redis`; it names the server at `port`.
RedisServer sentinel_for(const TlsRedis& redis, int port) {
  RedisOptions options{.sentinel = true, .config = certificate_of(redis), .tls = true};
  options.config.emplace_back("tls-replication yes");
  options.config.push_back("sentinel monitor locks 127.0.0.1 " + std::to_string(port) + " 1");
  return RedisServer(options);
}

Result look(const std::string& url, const TlsRedis& trusted) {
  const ProcessOptions options{
      .env = {{"DLOCK_TLS_CA", trusted.ca.file()}, {"DLOCK_PASSWORD", "secret"}}};
  return dlock({"run", "-n", "-k", "k", "-t", "30", "--server", url, "--", "echo", "ran"}, options);
}

std::string url_of_sentinel(int port) {
  return "rediss+sentinel://127.0.0.1:" + std::to_string(port) + "/locks";
}

std::string url_of(const RedisServer& sentinel) { return url_of_sentinel(sentinel.tls_port()); }

}  // namespace

TEST_CASE("tls: sentinel and master prove themselves, and a master that cannot is sent nothing") {
  const RedisOptions with_password{.password = "secret"};
  const TlsRedis master(with_password);
  const RedisServer sentinel = sentinel_for(master, master.server.tls_port());
  const Result ran = look(url_of(sentinel), master);
  CHECK(ran.err == "");
  CHECK(ran.out == "ran\n");

  const TlsRedis foreign(with_password);
  const RedisServer misled = sentinel_for(master, foreign.server.tls_port());
  foreign.server.command({"CONFIG", "RESETSTAT"});
  const Result refused = look(url_of(misled), master);
  CHECK(refused.exit_code == 77);
  CHECK(refused.err.find("127.0.0.1:" + std::to_string(foreign.server.tls_port())) !=
        std::string::npos);
  CHECK(refused.err.find("comes from the CA") != std::string::npos);
  const std::string stats = foreign.server.command({"INFO", "commandstats"}).text;
  CHECK(times(stats, "cmdstat_auth:") <= 1);  // the test's own
  CHECK(times(stats, "cmdstat_client") == 0);
  CHECK(times(stats, "cmdstat_evalsha") == 0);

  const Result no_sentinel = once_served([&] { return look(url_of(sentinel), foreign); });
  CHECK(no_sentinel.exit_code == 77);
}

TEST_CASE("tls: --sentinel-tls separates sentinels from their master") {
  const TlsRedis master;
  const RedisServer plain_master({.tcp = true});
  const auto monitor = [](int port) {
    return "sentinel monitor locks 127.0.0.1 " + std::to_string(port) + " 1";
  };
  const RedisServer plain_sentinel(
      {.tcp = true, .sentinel = true, .config = {monitor(master.server.tls_port())}});
  const RedisServer tls_sentinel = sentinel_for(master, plain_master.port());
  const auto ran = [&](const std::string& url, std::map<std::string, std::string> variables) {
    variables["DLOCK_TLS_CA"] = master.ca.file();
    variables["DLOCK_SERVER"] = url;
    return dlock({"run", "-n", "-k", "k", "--", "echo", "ran"}, {.env = variables});
  };
  const std::string in_plain =
      "+sentinel://127.0.0.1:" + std::to_string(plain_sentinel.port()) + "/locks";
  const std::string under_tls =
      "+sentinel://127.0.0.1:" + std::to_string(tls_sentinel.tls_port()) + "/locks";
  check_says(ran("rediss" + in_plain, {}), 69, "rediss://127.0.0.1:");
  CHECK(ran("rediss" + in_plain, {{"DLOCK_SENTINEL_TLS", "off"}}).out == "ran\n");
  CHECK(master.server.command({"EXISTS", "dlock:{k}:fence"}).number == 1);
  check_says(ran("redis" + under_tls, {}), 69, "redis://127.0.0.1:");
  CHECK(ran("redis" + under_tls, {{"DLOCK_SENTINEL_TLS", "on"}}).out == "ran\n");
  CHECK(plain_master.command({"EXISTS", "dlock:{k}:fence"}).number == 1);
}

TEST_CASE("tls: a CA that is just being replaced ends no waiter behind Sentinel") {
  const TlsRedis master;
  const RedisServer sentinel = sentinel_for(master, master.server.tls_port());
  FaultProxy proxy(Address{"", sentinel.tls_port()}, true);
  const TempDir dir;
  write_file(dir / "ca", read_file(master.ca.file()));
  const Process holder = start_dlock({"run", "-k", "k", "-t", "60s", "--", "sh", "-c",
                                      "until [ -e '" + (dir / "end") + "' ]; do sleep 0.05; done"},
                                     master.with_server());
  REQUIRE(eventually([&] { return master.server.command({"EXISTS", "dlock:{k}"}).number == 1; }));
  const ProcessOptions options{.env = {{"DLOCK_TLS_CA", dir / "ca"},
                                       {"DLOCK_SERVER", url_of_sentinel(proxy.address().port)}}};
  // A waiter after its first request does not listen yet, so it has no such connection to lose.
  const auto listens = [&] {
    return master.server.command({"PUBSUB", "CHANNELS", "*{k}:*"}).items.size() == 1;
  };
  Process waiter = patient_start(
      [&] {
        return start_dlock({"run", "-k", "k", "-t", "12s", "--", "echo", "ran"}, options);
      },
      listens, "it did not wait");
  replace_file(dir / "ca", "");
  const int before = proxy.connections();
  master.server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
  CHECK(eventually([&] { return proxy.connections() >= before + 3 || !waiter.running(); }));
  CHECK(waiter.running());
  replace_file(dir / "ca", read_file(master.ca.file()));
  write_file(dir / "end", "");
  const Result result = waiter.wait(milliseconds(90'000));
  CAPTURE(result.err);
  CHECK(result.out == "ran\n");
}

TEST_CASE("tls: a Cluster's nodes are reached under TLS, all verbs, and a keeper stays") {
  const UnusedPort bus;
  const TlsRedis node({.tcp = true,
                       .config = {"cluster-enabled yes", "tls-cluster yes",
                                  "cluster-port " + std::to_string(bus.number())}});
  node.server.command({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
  REQUIRE(eventually([&] {
    return node.server.command({"CLUSTER", "INFO"}).text.find("cluster_state:ok") !=
           std::string::npos;
  }));
  TempDir dir;
  ProcessOptions options = node.with_server();
  options.cwd = dir.path();
  options.env["DLOCK_SERVER"] =
      "rediss+cluster://127.0.0.1:" + std::to_string(node.server.tls_port());
  // A relative path, and an attach daemon that is in "/" when it reads the file again.
  write_file(dir / "ca.pem", read_file(node.ca.file()));
  options.env["DLOCK_TLS_CA"] = "ca.pem";
  options.env["DLOCK"] = dlock_path();
  CHECK(dlock({"run", "-k", "a", "-k", "b", "--", "echo", "ran"}, options).out == "ran\n");
  Process script = patient_start(
      [&] {
        return Process(
            {"sh", "-c", "\"$DLOCK\" acquire c -t 6s --attach $$ && echo >in && exec sleep 60"},
            clean(options));
      },
      [&] { return std::filesystem::exists(dir / "in"); }, "not acquired");
  const auto hold = [&] { return node.server.command({"HVALS", "dlock:{c}"}).items; };
  REQUIRE(hold().size() == 1);
  node.server.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  const std::string before = hold().at(0).text;
  CHECK(eventually([&] { return !hold().empty() && hold()[0].text != before; }));
  CHECK(script.running());
  CHECK(dlock({"inspect", "c"}, options).out.find("held by") != std::string::npos);
  script.signal(SIGTERM);
  script.wait();
  CHECK(eventually([&] { return hold().empty(); }));
}

}  // namespace dlock::test
