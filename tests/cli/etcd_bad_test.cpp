// Faults of an etcd that holds locks, and of its data.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/etcd_servers.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {
namespace {

TEST_CASE("etcd: nobody there, or another product, is one line and 69") {
  if (is_missing<EtcdServers>()) return;
  const auto nobody = run_at("etcd://u:pw-of-it@127.0.0.1:1,127.0.0.1:2");
  check_message(nobody, 69, "etcd://127.0.0.1:1,127.0.0.1:2: ");
  CHECK(!holds(nobody.err, "pw-of-it"));
  const RedisServer redis({.tcp = true});
  check_message(run_at("etcd://127.0.0.1:" + std::to_string(redis.port())), 69);
  check_message(run_at("etcds" + cleared<EtcdServers>().url().substr(4)), 69);
}

TEST_CASE("etcd: one without its gateway, and a learner, are named as such with 69") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto refused = [](const std::string& url, const std::string& why) {
    Result result;
    CHECK(eventually([&] {
      result = run_at(url);
      return holds(result.err, why);
    }));
    check_message(result, 69, "dlock: a: " + url + ": ");
    // On a busy machine a server that is slow is one that cannot be reached.
    CHECK(eventually([&] {
      result = doctor_at(url);
      return holds(result.out, why) && !holds(result.out, "firewall");
    }));
  };
  const UnusedPort client, peer;
  const TempDir dir;
  const std::string peer_url = "http://127.0.0.1:" + std::to_string(peer.number());
  const std::string learner = "127.0.0.1:" + std::to_string(client.number());
  const auto added =
      etcd.ask("cluster/member/add", {{"peerURLs", {peer_url}}, {"isLearner", true}});
  std::string cluster = "learner=" + peer_url;
  for (const auto& member : added.at("members")) {
    const auto name = member.value("name", "");
    if (!name.empty()) cluster += "," + name + "=" + member.at("peerURLs").at(0).get<std::string>();
  }
  const ProcessOptions how{.merge = true};
  const Process process(
      {"/usr/bin/etcd", "--name", "learner", "--data-dir", dir / "data", "--listen-client-urls",
       "http://" + learner, "--advertise-client-urls", "http://" + learner, "--listen-peer-urls",
       peer_url, "--initial-advertise-peer-urls", peer_url, "--initial-cluster", cluster,
       "--initial-cluster-state", "existing", "--log-level", "error"},
      how);
  refused("etcd://" + learner, "it is a learner");
  etcd.kill_hard(0);
  etcd.start(0, {"--enable-grpc-gateway=false"});
  refused(etcd.url(), "--enable-grpc-gateway=false");
}

TEST_CASE("etcd: a password without TLS to another host is warned of") {
  const auto far = dlock({"run", "-n", "-t", "600ms", "-k", "a", "--", "true"},
                         at("etcd://u:pw-of-it@nowhere.invalid"));
  CHECK(holds(far.err, "the password goes to nowhere.invalid:2379 in plain text: use etcds://"));
  CHECK(!holds(far.err, "pw-of-it"));
  const auto near = run_at("etcd://u:pw-of-it@127.0.0.1:1");
  CHECK(!holds(near.err, "plain text"));
}

TEST_CASE("etcd: a user or password that is not UTF-8 is refused, and no password shown") {
  // No server is asked.
  const UnusedPort port;
  const std::string server = "127.0.0.1:" + std::to_string(port.number());
  const auto refused = [&](const std::string& login, const std::string& what) {
    CAPTURE(login);
    const std::string url = "etcd://" + login + "@" + server;
    const auto result = run_at(url);
    check_message(result, 64, what + " is not UTF-8");
    CHECK(!holds(result.err, "E9"));
    const auto examined = doctor_at(url);
    CHECK(examined.exit_code != 70);
    CHECK(holds(examined.out, "is not UTF-8"));
    for (const std::string& said : {result.err, examined.out, examined.err}) {
      CHECK(!holds(said, "bug"));
      CHECK(!holds(said, "xyzzy"));
    }
  };
  refused("app:xyzzy%e9", "the password");
  refused("app:%e9xyzzy", "the password");
  refused("app%e9:xyzzy", "the user");
}

TEST_CASE("etcd: a user needs the right password, and the rights that doctor prints") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto user = [&](const char* name, const char* role) {
    etcd.ask("auth/user/add", {{"name", name}, {"password", password}});
    etcd.ask("auth/user/grant", {{"user", name}, {"role", role}});
  };
  etcd.ask("auth/role/add", {{"name", "root"}});
  etcd.ask("auth/role/add", {{"name", "dlock"}});
  etcd.ask("auth/role/add", {{"name", "nothing"}});
  // The same as `etcdctl role grant-permission dlock --prefix=true readwrite dlock:`.
  etcd.ask("auth/role/grant", {{"name", "dlock"},
                               {"perm",
                                {{"permType", "READWRITE"},
                                 {"key", to_base64("dlock:")},
                                 {"range_end", to_base64("dlock;")}}}});
  CHECK(holds(dlock_at(etcd.url("app:x@"), {"doctor", "--acl"}).out,
              "role grant-permission dlock --prefix=true readwrite dlock:\n"));
  user("root", "root");
  user("app", "dlock");
  user("other", "nothing");
  etcd.ask("auth/enable", nlohmann::json::object());
  const std::string pw = password;
  const auto refused = [&](const std::string& login, const std::string& why) {
    CAPTURE(login);
    const auto result = run_at(etcd.url(login));
    CHECK(result.exit_code == 77);
    CHECK(is_one_message(result.err));
    CHECK(holds(result.err, why));
    CHECK(!holds(result.err, pw));
  };
  refused("", "requires a user and a password");
  refused("app:wrong-one@", "user or password is wrong");
  refused("other:" + pw + "@", "dlock doctor --acl");
  const std::string url = etcd.url("app:" + pw + "@");
  CHECK(run_at(url).exit_code == 0);
  Process waiter = [&] {
    CommandInside holder(url);
    Process second = queued_at(url, 1, {"--", "echo", "in"});
    holder.end();
    CHECK(holder.process.wait().exit_code == 0);
    return second;
  }();
  CHECK(waiter.wait().out == "in\n");
  auto environment = at(etcd.url("app@"));
  environment.env["DLOCK_PASSWORD"] = password;
  CHECK(dlock({"run", "-k", "a", "--", "true"}, environment).exit_code == 0);
  Result examined;
  // The doctor reports one stall of a busy machine as a slow server, but a machine does not stall
  // every time.
  CHECK(eventually([&] {
    examined = doctor_at(url);
    return holds(finding(examined, "lock"), "ok acquired");
  }));
  CHECK(holds(finding(examined, "user"), "app"));
}

TEST_CASE(
    "etcd: a full database refuses new locks, keeps those that are held, and doctor says so") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd({.flags = {"--quota-backend-bytes", "1048576"}});
  CommandInside holder(etcd.url(), {"-t", "24s"});
  const std::string much(200'000, 'x');
  for (int i = 0; i < 20; ++i) {
    try {
      etcd.ask("kv/put", {{"key", to_base64("much")}, {"value", to_base64(much)}});
    } catch (const Error& error) {
      CHECK(holds(error.what(), "NOSPACE"));
    }
  }
  check_message(dlock_at(etcd.url(), {"run", "-n", "-k", "b", "--", "true"}), 69, "NOSPACE");
  CHECK(holds(finding(doctor_at(etcd.url()), "alarm"), "error NOSPACE"));
  // Renewals need no space.
  CHECK(grows_twice([&]() -> std::optional<long long> {
    const auto state = state_at(etcd.url(), "a");
    if (state.is_discarded() || state["holders"].empty()) return std::nullopt;
    return state["holders"][0]["lease_left_ms"].get<long long>();
  }));
  CHECK(holder.process.running());
}

/// The environment for dlock at `url`, with the CA to trust, if any, and the client's certificate.
ProcessOptions under_tls(const std::string& url, const std::string& authority,
                         const Certificate& own) {
  ProcessOptions options = at(url);
  if (!authority.empty()) options.env["DLOCK_TLS_CA"] = authority;
  options.env["DLOCK_TLS_CERT"] = own.file;
  options.env["DLOCK_TLS_KEY"] = own.key;
  return options;
}

void overwrite(const std::string& file, const std::string& by) {
  replace_file(file, read_file(by));
}

TEST_CASE("etcd: certificates are verified, and a client shows its own") {
  if (is_missing<EtcdServers>()) return;
  const TestCa ca, stranger("Another CA");
  const Certificate own = ca.issue("client");
  const EtcdOptions options{.tls = EtcdTls{ca.issue("server"), ca.file(), own}};
  EtcdServers etcd(options);
  const auto run_with = [&](const std::string& authority, bool with_own) {
    auto environment = under_tls(etcd.url(), authority, own);
    for (const char* each : {"DLOCK_TLS_CERT", "DLOCK_TLS_KEY"}) {
      if (!with_own) environment.env.erase(each);
    }
    return dlock({"run", "-k", "a", "--", "true"}, environment);
  };
  CHECK(run_with(ca.file(), true).exit_code == 0);
  CHECK(run_with(ca.hashed_directory(), true).exit_code == 0);
  for (const Result& refused : {run_with(stranger.file(), true), run_with(ca.file(), false)}) {
    check_message(refused, 77);
  }
}

TEST_CASE("etcd: a member whose certificate is refused is passed over for one that is trusted") {
  if (is_missing<EtcdServers>()) return;
  const TlsRedis stranger;
  const TestCa ca;
  const EtcdOptions options{.tls = EtcdTls{ca.issue("server"), ca.file(), ca.issue("client")}};
  EtcdServers etcd(options);
  const std::string bad = "127.0.0.1:" + std::to_string(stranger.server.tls_port());
  const std::string good = "127.0.0.1:" + std::to_string(etcd.endpoint(0).port);
  const auto run_with = [&](const std::string& members) {
    return dlock({"run", "-n", "-k", "a", "-t", "60s", "--", "true"},
                 under_tls("etcds://" + members, ca.file(), options.tls->client));
  };
  const auto served = run_with(bad + "," + good);
  CAPTURE(served.err);
  CHECK(served.exit_code == 0);
  CHECK(run_with(bad).exit_code == 77);
}

TEST_CASE("etcd: a CA that is replaced while a lock is held counts from the next connection on") {
  if (is_missing<EtcdServers>()) return;
  const TestCa before, after("Another CA");
  // Issued in advance, as on a busy machine it takes as long as a lease.
  const Certificate server = after.issue("server"), client = after.issue("client");
  const EtcdOptions options{
      .tls = EtcdTls{before.issue("server"), before.file(), before.issue("client")}};
  EtcdServers etcd(options);
  const TempDir dir;
  const std::string authority = dir / "ca";
  const Certificate own{dir / "cert", dir / "key"};
  const auto put = [&](const TestCa& ca, const Certificate& shown) {
    overwrite(authority, ca.file());
    overwrite(own.file, shown.file);
    overwrite(own.key, shown.key);
  };
  put(before, options.tls->client);
  CommandInside holder(under_tls(etcd.url(), authority, own), {"-t", "15s"});
  etcd.kill_hard(0);
  overwrite(options.tls->server.file, server.file);
  overwrite(options.tls->server.key, server.key);
  overwrite(options.tls->ca, after.file());
  overwrite(options.tls->client.file, client.file);
  overwrite(options.tls->client.key, client.key);
  put(after, client);
  etcd.start(0);
  etcd.await_service();
  // Beyond the lease that was granted before.
  const auto later_on = later(BootClock::now(), std::chrono::seconds(17));
  REQUIRE(eventually([&] { return BootClock::now() > later_on || !holder.process.running(); }));
  CAPTURE(holder.process.err());
  CHECK(holder.process.running());
  holder.end();
  CHECK(holder.process.wait().exit_code == 0);
}

TEST_CASE("etcd: a certificate that the system trusts is refused where --tls-ca names another CA") {
  if (is_missing<EtcdServers>()) return;
  const TestCa ca, stranger("Another CA");
  const EtcdOptions options{.tls = EtcdTls{ca.issue("server"), ca.file(), ca.issue("client")}};
  EtcdServers etcd(options);
  const std::string system = ca.hashed_directory();
  std::filesystem::copy_file(ca.file(), system + "/ca-certificates.crt");
  const auto run_with = [&](const std::string& authority) {
    auto environment = under_tls(etcd.url(), authority, options.tls->client);
    environment.env["D"] = dlock_path();
    environment.env["SYSTEM"] = system;
    const std::string line =
        R"(mount --bind "$SYSTEM" /etc/ssl/certs || exit 99; exec "$D" run -k a -- true)";
    return run({"unshare", "-m", "sh", "-c", line}, clean(environment));
  };
  const auto trusted = run_with("");
  if (skip_if(trusted.exit_code == 99 || holds(trusted.err, "unshare"), "no mount here")) return;
  CHECK(trusted.exit_code == 0);
  CHECK(run_with(ca.file()).exit_code == 0);
  for (const auto& other : {stranger.file(), stranger.hashed_directory()}) {
    CAPTURE(other);
    check_message(run_with(other), 77);
  }
}

TEST_CASE("etcd: a host that no resolver answers for is given up in time, and at a signal") {
  const std::vector<std::string> words{"run", "-k", "a", "--", "true"};
  Process one = start_dlock(words, at_test_names("etcd://db.100000.test"));
  Process two = start_dlock(words, at_test_names("etcd://a.100000.test,b.100000.test"));
  for (Process* each : {&one, &two}) check_given_up(each->wait());
  Process waiter = start_dlock({"run", "-w", "300", "-t", "300", "-k", "a", "--", "true"},
                               at_test_names("etcd://db.100000.test"));
  // The second thread of the waiter queries the resolver.
  const std::filesystem::path threads = "/proc/" + std::to_string(waiter.pid()) + "/task";
  REQUIRE(eventually([&] {
    const std::filesystem::directory_iterator all(threads);
    return std::distance(begin(all), end(all)) > 1;
  }));
  waiter.signal(SIGTERM);
  CHECK(waiter.wait().signal == SIGTERM);
}

TEST_CASE("etcd: of several hosts one that is not found is passed over, of its addresses one") {
  if (is_missing<EtcdServers>()) return;
  const std::string port = ":" + std::to_string(cleared<EtcdServers>().endpoint(0).port);
  const auto lock_at = [&](const std::string& hosts) {
    return dlock({"run", "-k", "a", "--", "true"}, at_test_names("etcd://" + hosts));
  };
  CHECK(lock_at("two.test" + port).exit_code == 0);
  check_names_passed_over(lock_at, port);
}

}  // namespace
}  // namespace dlock::test
