// Sentinel and Cluster with TLS: every server has to prove its identity, no matter which server
// named it.

#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>

#include "cli/attached.hpp"
#include "support/eventually.hpp"
#include "support/fault_proxy.hpp"
#include "support/files.hpp"
#include "support/one_of_tries.hpp"
#include "support/patient_start.hpp"
#include "support/scene.hpp"
#include "support/sockets.hpp"
#include "support/tls_redis.hpp"

namespace dlock::test {
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
