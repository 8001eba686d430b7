#include <doctest/doctest.h>

#include <sstream>

#include "cli/doctor_report.hpp"
#include "support/eventually.hpp"
#include "support/fake_server.hpp"
#include "support/files.hpp"
#include "support/resp.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {
namespace {

TEST_CASE("doctor: a healthy server is fit, text and JSON say the same, and nothing stays") {
  const RedisServer server(keeping_all());
  const Report text = doctor(server.url());
  CHECK(text.result.exit_code == 0);
  CHECK(text.result.err == "");
  CHECK(text.says("lock", "ok", "handed over"));
  CHECK(text.says("persistence", "ok", "always"));
  CHECK(text.says("label", "ok", "best effort"));
  CHECK(text.says("verdict", "ok", "fit to hold locks"));
  CHECK(server.command({"DBSIZE"}).number == 0);

  const auto json = nlohmann::ordered_json::parse(doctor(server.url(), {"--json"}).result.out);
  CHECK(names(json) == Words{"server", "label", "verdict", "checks"});
  CHECK(json["server"] == server.url());
  CHECK(json["verdict"] == "ok");
  std::istringstream lines(text.result.out);
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(line == server.url());
  for (const auto& check : json["checks"]) {
    CHECK(names(check) == Words{"check", "level", "text", "advice"});
    REQUIRE(std::getline(lines, line));
    CHECK(holds(line, check["level"].get<std::string>() + " "));
    CHECK(holds(line, " " + check["check"].get<std::string>() + " "));
    const bool varies =
        check["check"] == "reach" || check["check"] == "lock" || check["check"] == "clock";
    if (!varies) CHECK(holds(line, check["text"].get<std::string>()));
  }
  const auto quiet = doctor(server.url(), {"-q"});
  CHECK(quiet.result.exit_code == 0);
  CHECK(quiet.result.out == "");
}

TEST_CASE("doctor: servers that are set up wrongly, each told with what to do") {
  SUBCASE("evicts locks, and keeps nothing") {
    const RedisServer server(configured({"maxmemory 100mb", "maxmemory-policy allkeys-lru"}));
    const Report report = doctor(server.url());
    CHECK(report.result.exit_code == 2);
    CHECK(report.says("eviction", "error", "-> CONFIG SET maxmemory-policy noeviction"));
    CHECK(report.says("persistence", "warning", "-> CONFIG SET appendonly yes"));
    CHECK(report.says("verdict", "error", "1 error, 1 warning"));
    CHECK(doctor(server.url(), {"-q"}).result.exit_code == 2);
    server.command({"CONFIG", "SET", "maxmemory", "0"});
    CHECK(doctor(server.url(), {"-q"}).result.exit_code == 1);
  }
  SUBCASE("is full") {
    const RedisServer server(configured({"maxmemory 1mb"}));
    const Report report = doctor(server.url());
    CHECK(report.result.exit_code == 2);
    CHECK(report.says("lock", "error", "-> raise maxmemory"));
    CHECK(server.command({"DBSIZE"}).number == 0);
  }
  SUBCASE("has too few replicas") {
    const RedisServer server(configured({"min-replicas-to-write 1"}));
    const Report report = doctor(server.url());
    CHECK(report.result.exit_code == 2);
    CHECK(report.says("lock", "error", "too few replicas"));
    server.command({"CONFIG", "SET", "min-replicas-to-write", "0"});
    Report counting;
    // If the server stalls while it counts, the doctor reports a deadline instead.
    in_one_of(3, [&] {
      counting = doctor(server.url(), {"--replicas", "2"});
      return !counting.line("lock", "only 0 of 2 replicas").empty();
    });
    CHECK(counting.result.exit_code == 2);
    CHECK(counting.says("lock", "error", "only 0 of 2 replicas"));
    CHECK(server.command({"DBSIZE"}).number == 0);
  }
  SUBCASE("runs no scripts, or tells nothing") {
    const RedisServer mute(configured({"rename-command EVAL \"\"", "rename-command EVALSHA \"\""}));
    const Report without = doctor(mute.url());
    CHECK(without.result.exit_code == 2);
    CHECK(without.says("lock", "error", "unknown command"));
    const RedisServer secretive(
        configured({"rename-command INFO \"\"", "rename-command ACL \"\"",
                    "rename-command CONFIG \"\"", "rename-command ROLE \"\""}));
    const Report untold = doctor(secretive.url());
    CHECK(untold.result.exit_code == 0);
    CHECK(untold.says("eviction", "ok", "not told (INFO: unknown command, CONFIG: unknown"));
    CHECK(untold.says("lock", "ok", "handed over"));
    CHECK(untold.says("role", "ok", "master"));
  }
  SUBCASE("is busy with a script, or still") {
    const RedisServer server;
    server.command({"CONFIG", "SET", "busy-reply-threshold", "1"});
    CHECK(doctor("unix:///nowhere").says("reach", "error", "is it running"));
    const Process script(
        {"sh", "-c", "exec redis-cli -s " + server.socket_path() + " EVAL 'while true do end' 0"});
    REQUIRE(eventually([&] { return server.command({"PING"}).text.starts_with("BUSY"); }));
    const Report report = doctor(server.url());
    CHECK(report.result.exit_code == 2);
    CHECK(report.says("reach", "error", "SCRIPT KILL"));
    server.command({"SCRIPT", "KILL"});
  }
}

TEST_CASE("doctor: advice is about the error, whatever the server and its host are called") {
  const Report unknown = doctor("redis://certificate-store.invalid");
  CHECK(unknown.says("reach", "error", "cannot look up certificate-store.invalid"));
  CHECK(unknown.says("reach", "error", "-> fix the name in --server, or DNS"));
  FakeServer server(
      std::vector<Step>{say("-ERR the TLS certificate database is busy loading\r\n")});
  CHECK(doctor(server.url()).says("lock", "error", "-> see the server's log"));
}

TEST_CASE("doctor: a replica takes no locks, and a master with one is fit") {
  RedisOptions options = keeping_all();
  options.tcp = true;
  options.config.emplace_back("repl-diskless-sync-delay 0");
  const RedisServer master(options);
  const RedisServer replica(configured({"replicaof 127.0.0.1 " + std::to_string(master.port())}));
  const Report report = doctor(replica.url());
  CHECK(report.result.exit_code == 2);
  CHECK(report.says("role", "error", "-> --server " + master.tcp_url()));
  CHECK(report.line("lock") == "");
  CHECK(!holds(replica.command({"INFO", "commandstats"}).text, "cmdstat_eval"));
  REQUIRE(eventually([&] {
    return holds(master.command({"INFO", "replication"}).text, "state=online");
  }));
  const Report replicated = doctor(master.tcp_url(), {"--replicas", "1"});
  CHECK(replicated.says("replication", "ok", "1 replica"));
  CHECK(replicated.says("lock", "ok", "handed over"));
  CHECK(replicated.result.exit_code == 0);
}

TEST_CASE("doctor: passwords and users, from none to the least that is enough") {
  RedisOptions options = keeping_all();
  options.password = "of-the-admin";
  options.tcp = true;
  const RedisServer server(options);
  const auto url = [&](const std::string& user) {
    return "redis://" + user + (user.empty() ? "" : "@") +
           "127.0.0.1:" + std::to_string(server.port());
  };
  CHECK(doctor(url("")).says("reach", "error", "wants a password"));
  const Report wrong = doctor(url(""), {}, "wrong-one");
  CHECK(wrong.result.exit_code == 2);
  CHECK(wrong.says("reach", "error", "check user and password"));
  CHECK(!holds(wrong.result.out + wrong.result.err, "wrong-one"));

  const auto add = [&](const std::string& name, Words rules) {
    rules.insert(rules.begin(), {"ACL", "SETUSER", name, "on", ">pw"});
    REQUIRE(server.command(rules).text == "OK");
  };
  add("poor",
      {"~dlock:*", "resetchannels", "&dlock:*", "+@all", "-zrank", "-publish", "-info", "-exec"});
  const Report poor = doctor(url("poor"), {}, "pw");
  CHECK(poor.result.exit_code == 2);
  CHECK(poor.says("rights", "error", "may not use: zrank publish exec -> grant"));
  CHECK(poor.says("replication", "ok", "not told (INFO: NOPERM)"));
  add("foreign", {"~app:*", "resetchannels", "&app:*", "+@all"});
  CHECK(doctor(url("foreign"), {}, "pw").says("rights", "error", "may not use: exists set"));
  add("nolua", {"~*", "&*", "+@all", "-eval", "-evalsha"});
  CHECK(doctor(url("nolua"), {}, "pw").says("rights", "error", "may not use: eval evalsha"));
  CHECK(server.command({"DBSIZE"}).number == 0);
}

TEST_CASE("doctor: the user that --acl prints is enough, and none of its rights can go") {
  const RedisServer server(keeping_all());
  const std::string prefix = "a*b[c]:";
  const Words flags{"--prefix", prefix};
  const std::string url = "unix://dlock@" + server.socket_path() + "?db=3";
  const auto acl = doctor(url, {"--prefix", prefix, "--acl"}, "PASSWORD");
  CHECK(acl.result.exit_code == 0);
  CHECK(holds(acl.result.out, " ~a\\*b\\[c\\]:* "));
  obey(server, acl.result.out);
  const Report fit = doctor(url, flags, "PASSWORD");
  CHECK(fit.result.exit_code == 0);
  CHECK(fit.says("rights", "ok", "all that dlock needs"));
  CHECK(fit.says("user", "ok", "dlock, by password"));
  const ProcessOptions options{.env = {{"DLOCK_SERVER", url}, {"DLOCK_PASSWORD", "PASSWORD"}}};
  CHECK(dlock({"run", "-k", "a", "--prefix", prefix, "--", "true"}, options).exit_code == 0);
  CHECK(dlock({"inspect", "--prefix", prefix}, options).exit_code == 0);
  CHECK(dlock({"run", "-k", "a", "--prefix", "ab[c]:", "--", "true"}, options).exit_code == 77);

  const TempDir dir;
  std::string line = acl.result.out;
  write_file(dir / "users.acl", "user" + line.substr(std::string("ACL SETUSER").size()));
  const RedisServer with_file(configured({"aclfile " + (dir / "users.acl")}));
  obey(with_file, "ACL SETUSER default off");
  CHECK(doctor("unix://dlock@" + with_file.socket_path() + "?db=3", flags, "PASSWORD")
            .says("lock", "ok", "handed over"));

  // Each user lacks one of the rights; all of them ask at once.
  Words rights;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.front() == '+' && word != "+select") rights.push_back(word);
  }
  std::vector<Process> asked;
  for (std::size_t i = 0; i < rights.size(); ++i) {
    const std::string user = "dlock" + std::to_string(i);
    std::string rules = line;
    rules.replace(rules.find(" dlock "), 7, " " + user + " ");
    obey(server, rules + " -" + rights[i].substr(1));
    asked.push_back(start_dlock(
        {"doctor", "--server", "unix://" + user + url.substr(12), "--prefix", prefix}, options));
  }
  for (std::size_t i = 0; i < rights.size(); ++i) {
    const Report less{asked[i].wait()};
    CAPTURE(rights[i]);
    CHECK(less.result.exit_code == 2);
    CHECK(less.says("rights", "error", "may not use: " + rights[i].substr(1)));
  }
}

TEST_CASE("doctor: TLS is told, and a certificate that ends soon warned of") {
  const TlsRedis tls(keeping_all());
  const auto ask = [&] { return Report{dlock({"doctor"}, tls.with_server())}; };
  const Report soon = ask();
  CHECK(soon.result.exit_code == 1);
  CHECK(soon.says("tls", "warning", "but a certificate expires in 1 day -> renew it"));
  tls.show(tls.ca.issue("long", loopback_names, 100));
  const Report fit = ask();
  CHECK(fit.result.exit_code == 0);
  CHECK(fit.says("tls", "ok", "TLSv1.3, certificate valid until 20"));
  CHECK(fit.says("lock", "ok", "handed over"));
  tls.show(tls.ca.issue("elsewhere", "DNS:elsewhere"));
  const Report foreign = ask();
  CHECK(foreign.result.exit_code == 2);
  CHECK(foreign.says("reach", "error", "-> make --tls-ca"));
  CHECK(doctor("redis://127.0.0.1:" + std::to_string(tls.endpoint().port))
            .says("reach", "error", "-> make the scheme"));
}

TEST_CASE("doctor: --acl without a server, and what goes with it") {
  const auto lines = [](const Words& flags) {
    Words words{"doctor", "--acl"};
    words.insert(words.end(), flags.begin(), flags.end());
    return dlock(words).out;
  };
  const std::string plain = lines({"--server", "redis://db1"});
  CHECK(plain.starts_with("ACL SETUSER dlock reset on >PASSWORD -@all ~dlock:* resetchannels "));
  CHECK(!holds(plain, "+select"));
  CHECK(!holds(plain, "+wait"));
  CHECK(holds(lines({"--server", "redis://db1/2", "--replicas", "1"}), " +select +wait "));
  const std::string sentinel = lines({"--server", "redis+sentinel://s1,s2/locks"});
  CHECK(holds(sentinel, " +role "));
  CHECK(holds(sentinel, "\nACL SETUSER dlock reset on >PASSWORD -@all resetchannels +sentinel|"));
  const std::string cluster = lines({"--server", "redis+cluster://n1"});
  CHECK(holds(cluster, " +cluster|slots +asking "));
  CHECK(dlock({"doctor", "--acl", "--server", "local:/tmp"}).exit_code == 64);
  CHECK(dlock({"doctor", "--acl", "--json", "--server", "redis://db1"}).exit_code == 64);
  CHECK(dlock({"doctor", "redis://db1"}).exit_code == 64);
}

TEST_CASE("doctor: a directory of this host") {
  const TempDir dir;
  const Report report = doctor("local:" + dir.path());
  // The directory of the test is in /tmp, which gets a warning.
  CHECK(report.result.exit_code <= 1);
  CHECK(report.says("lock", "ok", "handed over"));
  CHECK(report.says("label", "ok", "safe on this host"));
  CHECK(run({"ls", "-A", dir.path()}).out == "");
  const Report missing = doctor("local:" + (dir / "none"));
  CHECK(missing.result.exit_code == 2);
  CHECK(missing.says("directory", "error", "No such file"));
}

std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

/// The server's time, `ahead` of this host's.
std::string time_reply(std::chrono::seconds ahead) {
  const auto now = (wall_now() + ahead).time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return request(
      {std::to_string(seconds.count()), std::to_string(microseconds(now - seconds).count())});
}

/// A server that knows INFO and TIME, and answers all other commands with `otherwise`.
FakeServer engine(const std::string& info, const std::string& otherwise,
                  std::chrono::seconds ahead = std::chrono::seconds(0)) {
  return FakeServer([=](const Words& words) {
    if (words.front() == "INFO") return say(info.empty() ? otherwise : bulk(info));
    if (words.front() == "TIME") return say(time_reply(ahead));
    return say(otherwise);
  });
}

TEST_CASE("doctor: a server that tells nothing of itself, one of its own kind, and none at all") {
  const std::string unknown = "-ERR unknown command\r\n";
  const FakeServer silent = engine("", unknown, std::chrono::hours(2));
  const Report untold = doctor(silent.url());
  CHECK(untold.says("engine", "ok", "not told (INFO: unknown command, CONFIG: unknown command)"));
  CHECK(untold.says("lock", "error", "unknown command"));
  CHECK(untold.says("clock", "warning", "7200 s ahead"));
  // libs/server/Metrics/Info/GarnetInfoMetrics.cs, libs/server/Resp/CmdStrings.cs
  const FakeServer garnet = engine(
      "# Server\r\ngarnet_version:1.0.83\r\nos:Unix\r\nredis_version:7.4.3\x1b[2J\r\n"
      "redis_mode:standalone\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
      "-ERR This instance has Lua scripting support disabled\r\n");
  const Report without_lua = doctor(garnet.url());
  CHECK(without_lua.says("engine", "warning", "Garnet 1.0.83"));
  CHECK(without_lua.says("lock", "error", "Lua scripting support disabled"));
  CHECK(!holds(without_lua.result.out, "\x1b"));
  const FakeServer web(std::vector<Step>{say("HTTP/1.1 400 Bad Request\r\n\r\n")});
  const Report report = doctor(web.url());
  CHECK(report.result.exit_code == 2);
  CHECK(report.line("reach").starts_with("error"));
}

}  // namespace

}  // namespace dlock::test
