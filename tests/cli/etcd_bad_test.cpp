// What may be wrong with an etcd that holds locks, and with what is in it.

#include <doctest/doctest.h>
#include <signal.h>

#include "base/error.hpp"
#include "cli/etcd.hpp"
#include "cli/place.hpp"
#include "etcd/base64.hpp"
#include "support/eventually.hpp"
#include "support/redis_server.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {
namespace {

TEST_CASE("etcd: nobody there, or another product, is one line and 69") {
  if (no_etcd()) return;
  const auto nobody = run_at("etcd://u:pw-of-it@127.0.0.1:1,127.0.0.1:2");
  CHECK(nobody.exit_code == 69);
  CHECK(is_one_message(nobody.err));
  CHECK(holds(nobody.err, "etcd://127.0.0.1:1,127.0.0.1:2: "));
  CHECK(!holds(nobody.err, "pw-of-it"));
  const RedisServer redis({true, false, "", {}, {}});
  const auto other = run_at("etcd://127.0.0.1:" + std::to_string(redis.port()));
  CHECK(other.exit_code == 69);
  CHECK(is_one_message(other.err));
  const auto plain = run_at("etcds" + one_etcd().url().substr(4));
  CHECK(plain.exit_code == 69);
  CHECK(is_one_message(plain.err));
}

TEST_CASE("etcd: a password without TLS to another host is warned of") {
  const auto far = dlock({"run", "-n", "-t", "600ms", "-k", "a", "--", "true"},
                         at("etcd://u:pw-of-it@nowhere.invalid"));
  CHECK(holds(far.err, "the password goes to nowhere.invalid:2379 in plain text: use etcds://"));
  CHECK(!holds(far.err, "pw-of-it"));
  const auto near = run_at("etcd://u:pw-of-it@127.0.0.1:1");
  CHECK(!holds(near.err, "plain text"));
}

TEST_CASE("etcd: a user needs the right password, and the rights that doctor prints") {
  if (no_etcd()) return;
  EtcdServers etcd;
  const auto user = [&](const char* name, const char* role) {
    etcd.ask("auth/user/add", {{"name", name}, {"password", password}});
    etcd.ask("auth/user/grant", {{"user", name}, {"role", role}});
  };
  etcd.ask("auth/role/add", {{"name", "root"}});
  etcd.ask("auth/role/add", {{"name", "dlock"}});
  etcd.ask("auth/role/add", {{"name", "nothing"}});
  // As `etcdctl role grant-permission dlock --prefix=true readwrite dlock:`.
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
    Process second = start_dlock({"run", "-k", "a", "--", "echo", "in"}, at(url));
    REQUIRE(eventually([&] { return waiters(url) == 1; }));
    holder.end();
    CHECK(holder.process.wait().exit_code == 0);
    return second;
  }();
  CHECK(waiter.wait().out == "in\n");
  auto environment = at(etcd.url("app@"));
  environment.env["DLOCK_PASSWORD"] = password;
  CHECK(dlock({"run", "-k", "a", "--", "true"}, environment).exit_code == 0);
  const auto examined = doctor_at(url);
  CHECK(holds(finding(examined, "lock"), "ok acquired"));
  CHECK(holds(finding(examined, "user"), "app"));
}

TEST_CASE(
    "etcd: a full database refuses new locks, keeps those that are held, and doctor says so") {
  if (no_etcd()) return;
  EtcdServers etcd({1, {"--quota-backend-bytes", "1048576"}, {}});
  CommandInside holder(etcd.url(), {"-t", "6s"});
  const std::string much(200'000, 'x');
  for (int i = 0; i < 20; ++i) {
    try {
      etcd.ask("kv/put", {{"key", to_base64("much")}, {"value", to_base64(much)}});
    } catch (const Error& error) {
      CHECK(holds(error.what(), "NOSPACE"));
    }
  }
  const auto refused = dlock_at(etcd.url(), {"run", "-n", "-k", "b", "--", "true"});
  CHECK(refused.exit_code == 69);
  CHECK(is_one_message(refused.err));
  CHECK(holds(refused.err, "NOSPACE"));
  CHECK(holds(finding(doctor_at(etcd.url()), "alarm"), "error NOSPACE"));
  // Renewals need no space.
  const auto later_on = BootClock::now() + std::chrono::seconds(8);
  REQUIRE(eventually([&] { return BootClock::now() > later_on; }));
  CHECK(holder.process.running());
}

TEST_CASE("etcd: a record of a newer dlock, or of none, is left alone") {
  if (no_etcd()) return;
  EtcdServers& etcd = one_etcd();
  const auto with_value = [&](const std::string& value) {
    etcd.ask("kv/put", {{"key", to_base64("dlock:k:a")}, {"value", to_base64(value)}});
    const auto result = run_at(etcd.url());
    CHECK(is_one_message(result.err));
    return result.exit_code;
  };
  CHECK(with_value("ends 1\ndlock-record 2\nwhatever\n") == 65);
  CHECK(with_value("hello") == 65);
  CHECK(with_value("") == 65);
  CHECK(dlock_at(etcd.url(), {"inspect"}).exit_code == 0);
}

TEST_CASE("etcd: certificates are verified, and a client shows its own") {
  if (no_etcd()) return;
  const TestCa ca, stranger("Another CA");
  const Certificate own = ca.issue("client");
  EtcdOptions options;
  options.tls = EtcdTls{ca.issue("server"), ca.file(), own};
  EtcdServers etcd(options);
  const auto run_with = [&](const std::string& authority, bool with_own) {
    auto environment = at(etcd.url());
    environment.env["DLOCK_TLS_CA"] = authority;
    if (with_own) {
      environment.env["DLOCK_TLS_CERT"] = own.file;
      environment.env["DLOCK_TLS_KEY"] = own.key;
    }
    return dlock({"run", "-k", "a", "--", "true"}, environment);
  };
  CHECK(run_with(ca.file(), true).exit_code == 0);
  CHECK(run_with(ca.hashed_directory(), true).exit_code == 0);
  for (const Result& refused : {run_with(stranger.file(), true), run_with(ca.file(), false)}) {
    CHECK(refused.exit_code == 77);
    CHECK(is_one_message(refused.err));
  }
}

}  // namespace
}  // namespace dlock::test
