#include <doctest/doctest.h>
#include <sys/stat.h>

#include "unit/config_support.hpp"

namespace dlock {
namespace {

using test::Surroundings;
using Words = std::vector<std::string>;

/// The name of the only Redis in the settings.
std::string server_of(const ServerSettings& settings) {
  return std::get<Endpoint>(settings.server).name();
}

Words inspect(const std::string& server) { return {"inspect", "--server", server}; }

std::optional<Password> password(const ServerSettings& settings) {
  return std::get<Endpoint>(settings.server).password;
}

TEST_CASE("the server comes from flag, variable, user's file, system's file") {
  Surroundings place;
  CHECK(place.resolve<InspectSettings>({"inspect"}).server_is_default);
  place.system("server = redis://system");
  CHECK(server_of(place.resolve<InspectSettings>({"inspect"})) == "redis://system:6379");
  CHECK_FALSE(place.resolve<InspectSettings>({"inspect"}).server_is_default);
  place.user("server = redis://user");
  CHECK(server_of(place.resolve<InspectSettings>({"inspect"})) == "redis://user:6379");
  CHECK(place.resolve<InspectSettings>({"inspect"}).overridden_place == place.system_file() + ":1");
  place.variables["DLOCK_SERVER"] = "  redis://variable  ";
  CHECK(place.resolve<InspectSettings>({"inspect"}).overridden_place.empty());
  CHECK(server_of(place.resolve<InspectSettings>({"inspect"})) == "redis://variable:6379");
  CHECK(place.resolve<InspectSettings>(inspect("local:")).server == Target(LocalTarget{}));
  CHECK_FALSE(place.resolve<InspectSettings>(inspect("local:")).server_is_default);
}

TEST_CASE("three or more independent servers are one place, two or a mixture are refused") {
  Surroundings place;
  place.variables["DLOCK_SERVER"] = "redis://a rediss://:own@b:1 unix:///c";
  place.variables["DLOCK_PASSWORD"] = "common";
  const InspectSettings settings = place.resolve<InspectSettings>({"inspect"});
  const auto& servers = std::get<QuorumTarget>(settings.server).servers;
  REQUIRE(servers.size() == 3);
  CHECK(servers[1].name() == "rediss://b:1");
  CHECK(servers[0].password == "common");
  CHECK(servers[1].password == "own");
  CHECK(servers[1].tls);
  CHECK(settings.warnings.empty());
  CHECK(place.resolve<InspectSettings>(inspect("local:")).server == Target(LocalTarget{}));

  CHECK(
      place.usage_error({"inspect", "--server", "local:", "--server=redis://h"}) ==
      "--server: a majority takes independent servers only, redis://, rediss:// or unix://: local: "
      "cannot be among them");
  place.variables["DLOCK_SERVER"] = "redis://a redis://b";
  CHECK(place.usage_error({"inspect"}) ==
        "DLOCK_SERVER: two servers have no majority when one fails: name one, or three or more");
  place.variables["DLOCK_SERVER"] = "redis://a redis://b redis://a:6379/2";
  CHECK(place.usage_error({"inspect"}) ==
        "DLOCK_SERVER: a:6379 is named twice: a server has one vote");
  place.variables["DLOCK_SERVER"] = "redis://a redis://b redis://c redis://d";
  CHECK(place.resolve<InspectSettings>({"inspect"}).warnings ==
        std::vector<std::string>{
            "4 servers survive the loss of no more of them than 3 do: name an odd number"});
}

TEST_CASE("where several servers decide the ttl is at most a minute, and replicas have no part") {
  Surroundings place;
  place.variables["DLOCK_SERVER"] = "redis://a redis://b redis://c";
  place.variables["DLOCK_TTL"] = "61s";
  CHECK(
      place.usage_error({"run", "-k", "k", "true"}) ==
      "DLOCK_TTL: at most 1m00s on a majority of servers; dlock renews it while the command runs");
  CHECK(place.resolve<RunSettings>({"run", "-k", "k", "-t", "60", "true"}).ttl ==
        milliseconds(60'000));
  CHECK(place.usage_error({"run", "-k", "k", "-t", "60", "--replicas", "1", "true"}) ==
        "--replicas: only one Redis server, its sentinels or a Cluster have replicas");
}

TEST_CASE("a wrong URL is refused where it stands") {
  Surroundings place;
  CHECK(place.usage_error(inspect("rdis://h")) ==
        "--server: unknown scheme rdis://: did you mean redis://?");
  CHECK(place.usage_error(inspect("redis://h:0")).starts_with("--server: the port is no number"));
  CHECK(place.usage_error(inspect("")) == "--server: the value is empty");
  CHECK(place.usage_error(inspect("redis://a redis://b")).starts_with("--server: "));
  place.variables["DLOCK_SERVER"] = " ";
  CHECK(place.usage_error({"inspect"}) ==
        "DLOCK_SERVER: holds only spaces: unset it, or give it a value");
  place.variables["DLOCK_SERVER"] = "redis://h/x";
  CHECK(place.usage_error(inspect("local:"))
            .starts_with("DLOCK_SERVER: invalid database number \"x\""));
  place.variables.erase("DLOCK_SERVER");
  const std::string file = place.user("\nserver = redis://:secret@h/x");
  CHECK(place.file_error({"inspect"}) ==
        file + ":2: server: invalid database number \"x\" (0, 1, 2, ...)");
}

TEST_CASE("passwords come in their order") {
  Surroundings place;
  const std::string system = place.file("system.pw", "system-file\n");
  place.system("server = redis://h\npassword-file = " + system);
  CHECK(password(place.resolve<InspectSettings>({"inspect"})) == "system-file");
  place.user("password-command = echo user-command");
  CHECK(password(place.resolve<InspectSettings>({"inspect"})) == "user-command");
  place.user("password = user with  blanks");
  CHECK(password(place.resolve<InspectSettings>({"inspect"})) == "user with  blanks");
  place.variables["REDISCLI_AUTH"] = "rediscli";
  CHECK(password(place.resolve<InspectSettings>({"inspect"})) == "rediscli");
  place.variables["DLOCK_PASSWORD"] = "variable";
  CHECK(password(place.resolve<InspectSettings>({"inspect"})) == "variable");
  place.variables["DLOCK_PASSWORD_COMMAND"] = "echo variable-command";
  CHECK(password(place.resolve<InspectSettings>({"inspect"})) == "variable-command");
  place.variables["DLOCK_PASSWORD_FILE"] = place.file("variable.pw", "variable-file");
  CHECK(place.usage_error({"inspect"}) == "DLOCK_PASSWORD_COMMAND: excludes DLOCK_PASSWORD_FILE");
  place.variables.erase("DLOCK_PASSWORD_COMMAND");
  CHECK(password(place.resolve<InspectSettings>({"inspect"})) == "variable-file");
  CHECK(password(place.resolve<InspectSettings>(inspect("redis://:url@h"))) == "url");
  const std::string flag = place.file("flag.pw", "flag-file\n\n");
  CHECK(password(place.resolve<InspectSettings>({"inspect", "--password-file", flag})) ==
        "flag-file\n");
  CHECK(password(place.resolve<InspectSettings>(
            {"inspect", "--server=redis://:url@h", "--password-file", flag})) == "flag-file\n");
  CHECK(password(place.resolve<InspectSettings>(
            {"inspect", "--server=redis://:url@h", "--password-command=echo flag"})) == "flag");
}

TEST_CASE("a server without a password has none") {
  CHECK_FALSE(password(Surroundings().resolve<InspectSettings>(inspect("redis://h"))));
}

TEST_CASE("a password file that cannot be had is refused where it was named") {
  Surroundings place;
  const auto with = [](const std::string& file) {
    return Words{"inspect", "--server=redis://h", "--password-file", file};
  };
  const std::string missing = place.path("missing");
  CHECK(place.usage_error(with(missing)) ==
        "--password-file: cannot read \"" + missing + "\": No such file or directory");
  CHECK(place.usage_error(with(place.path(""))).ends_with("Is a directory"));
  CHECK(place.usage_error(with("/dev/zero")).find("is longer than 16384 bytes") !=
        std::string::npos);
  const std::string empty = place.file("empty", "\n");
  CHECK(place.usage_error(with(empty)) ==
        "--password-file: the password in " + empty + " is empty");
  place.variables["DLOCK_PASSWORD_FILE"] = missing;
  CHECK(place.usage_error(inspect("redis://h")).starts_with("DLOCK_PASSWORD_FILE: cannot read "));
  place.variables.erase("DLOCK_PASSWORD_FILE");
  const std::string file = place.user("password-file = " + missing);
  CHECK(
      place.file_error(inspect("redis://h")).starts_with(file + ":1: password-file: cannot read "));
  place.user("password-file = relative");
  CHECK(place.file_error(inspect("redis://h")) ==
        file + ":1: password-file: is not an absolute path");
}

TEST_CASE("an empty password variable is an unset one") {
  Surroundings place;
  place.user("password = of-file");
  for (const char* name :
       {"DLOCK_PASSWORD", "DLOCK_PASSWORD_FILE", "DLOCK_PASSWORD_COMMAND", "REDISCLI_AUTH"}) {
    place.variables[name] = "";
  }
  CHECK(password(place.resolve<InspectSettings>(inspect("redis://h"))) == "of-file");
}

TEST_CASE("a user without a password from anywhere is refused") {
  Surroundings place;
  const std::string line =
      ": a user without a password, which redis-cli would read as the password: write "
      "user:password@, or use --password-file or DLOCK_PASSWORD";
  CHECK(place.usage_error(inspect("redis://secret@h")) == "--server" + line);
  CHECK(place.usage_error(inspect("unix://secret@/h")) == "--server" + line);
  place.variables["DLOCK_PASSWORD"] = "pw";
  const InspectSettings settings = place.resolve<InspectSettings>(inspect("redis://app@h"));
  CHECK(password(settings) == "pw");
  CHECK(std::get<Endpoint>(settings.server).user == "app");
  CHECK(settings.warnings.empty());
}

TEST_CASE("a password on the command line or open to all is warned of, without the password") {
  Surroundings place;
  const auto warnings = place.resolve<InspectSettings>(inspect("redis://u:secret@h")).warnings;
  CHECK(warnings == Words{"a password on the command line can be seen by every user of this host: "
                          "use --password-file"});
  const auto client = inspect("postgres://h/db?oauth_client_secret=secret");
  CHECK(place.resolve<InspectSettings>(client).warnings ==
        Words{"a secret on the command line can be seen by every user of this host: use "
              "DLOCK_SERVER"});
  place.variables["DLOCK_SERVER"] = "redis://:secret@h";
  CHECK(place.resolve<InspectSettings>({"inspect"}).warnings.empty());
  const std::string file = place.file("pw", "secret\n");
  chmod(file.c_str(), 0644);
  CHECK(place.resolve<InspectSettings>({"inspect", "--password-file", file}).warnings ==
        Words{file + " holds a password and every user may read it: chmod o-r " + file});
}

TEST_CASE("the password is for every node of a Cluster, and for the master behind sentinels") {
  Surroundings place;
  place.variables["DLOCK_PASSWORD"] = "pw";
  const auto cluster = place.resolve<InspectSettings>(inspect("redis+cluster://app@n1,n2")).server;
  for (const Endpoint& seed : std::get<ClusterTarget>(cluster).seeds) CHECK(seed.password == "pw");
  const auto server = place.resolve<InspectSettings>(inspect("redis+sentinel://app@s1/m")).server;
  const auto& target = std::get<SentinelTarget>(server);
  CHECK(target.master.password == "pw");
  CHECK(target.master.user == "app");
  CHECK_FALSE(target.sentinels.front().password);
  CHECK_FALSE(target.sentinels.front().user);
}

TEST_CASE("a blank in a password, or a forgotten @, shows nothing of it") {
  Surroundings place;
  place.variables["DLOCK_SERVER"] = "redis://bob:sek ret3@localhost:1";
  CHECK(place.usage_error({"inspect"}) ==
        "DLOCK_SERVER: a URL contains a blank: in a user or password write %20");
  place.variables.erase("DLOCK_SERVER");
  for (const char* url :
       {"redis://bob:sekret3", "etcd://bob:sekret3", "zk://bob:sekret3/x", "mysql://bob:sekret3/x",
        "redis+cluster://bob:sekret3", "redis+sentinel://bob:sekret3/m", "redis://bob:a:sekret3",
        "unix:///x?db=0&password=sekret3", "redis+cluster://u:sekret3@h1,u:sekret3@h2"}) {
    const std::string line = place.usage_error(inspect(url));
    CHECK(line.starts_with("--server: "));
    CHECK(line.find("sekret3") == std::string::npos);
  }
}

TEST_CASE("sentinels have a login of their own") {
  Surroundings place;
  const std::string file = place.file("secret", "hush\n");
  place.variables["DLOCK_SENTINEL_USER"] = "watch";
  place.variables["DLOCK_SENTINEL_PASSWORD_FILE"] = file;
  const auto server = place.resolve<InspectSettings>(inspect("redis+sentinel://s1,s2/m")).server;
  for (const Endpoint& sentinel : std::get<SentinelTarget>(server).sentinels) {
    CHECK(sentinel.user == "watch");
    CHECK(sentinel.password == "hush");
  }
  CHECK_FALSE(std::get<SentinelTarget>(server).master.password);
  CHECK_FALSE(
      std::get<Endpoint>(place.resolve<InspectSettings>(inspect("redis://h")).server).password);
  place.variables.erase("DLOCK_SENTINEL_PASSWORD_FILE");
  CHECK(place.usage_error(inspect("redis+sentinel://s1/m")) ==
        "DLOCK_SENTINEL_USER: needs the password: --sentinel-password-file FILE");
  CHECK(place.usage_error({"inspect", "--server=redis://h", "--sentinel-user=x"}) ==
        "--sentinel-user: the server's URL names no sentinels");
}

TEST_CASE("a flag about the server that nothing heeds is refused") {
  Surroundings place;
  const std::string file = place.file("secret", "hush");
  for (const char* flag : {"--password-file=", "--tls-ca=", "--tls-cert=", "--sentinel-user="}) {
    CAPTURE(flag);
    CHECK(place.usage_error({"inspect", flag + file})
              .ends_with(": no server is named: it goes with --server or DLOCK_SERVER"));
  }
  for (const char* url : {"local:", "etcd://h", "zk://h"}) {
    CAPTURE(url);
    CHECK(place.usage_error({"inspect", "--server", url, "--password-file=" + file}) ==
          "--password-file: no user in --server has a password");
  }
  place.variables["DLOCK_PASSWORD_FILE"] = file;
  place.variables["DLOCK_TLS_CA"] = file;
  CHECK(std::holds_alternative<LocalTarget>(place.resolve<InspectSettings>({"inspect"}).server));
}

TEST_CASE("TLS settings reach every server of the URL") {
  Surroundings place;
  const std::string ca = place.file("ca.pem", "x");
  place.variables["DLOCK_TLS_CA"] = ca;
  place.variables["DLOCK_TLS_SERVER_NAME"] = "db.example.com";
  const TlsSettings settings{ca, "", "", "db.example.com"};
  CHECK(std::get<Endpoint>(place.resolve<InspectSettings>(inspect("rediss://h")).server).tls ==
        settings);
  CHECK_FALSE(std::get<Endpoint>(place.resolve<InspectSettings>(inspect("redis://h")).server).tls);
  const auto sentinel = place.resolve<InspectSettings>(inspect("rediss+sentinel://s1/m")).server;
  CHECK(std::get<SentinelTarget>(sentinel).master.tls == settings);
  CHECK(std::get<SentinelTarget>(sentinel).sentinels.front().tls == settings);
  const auto cluster = place.resolve<InspectSettings>(inspect("rediss+cluster://n1,n2")).server;
  CHECK(std::get<ClusterTarget>(cluster).seeds.back().tls == settings);
}

TEST_CASE("TLS files that are not there stop no command whose server has no TLS") {
  Surroundings place;
  place.user("tls-ca = /nowhere/other.pem");
  place.variables["DLOCK_TLS_CA"] = "/nowhere/ca.pem";
  for (const char* url : {"local:", "redis://h", "postgres://h/db"}) {
    CAPTURE(url);
    CHECK_NOTHROW(place.resolve<InspectSettings>(inspect(url)));
  }
  CHECK(place.usage_error({"inspect", "--server=rediss://h"}) ==
        "DLOCK_TLS_CA: cannot read \"/nowhere/ca.pem\": No such file or directory");
  place.variables["DLOCK_TLS_CA"] = "";
  CHECK(place.file_error({"inspect", "--server=rediss://h"}).find("/nowhere/other.pem") !=
        std::string::npos);
}

TEST_CASE("bad TLS settings are refused where they stand") {
  Surroundings place;
  const std::string file = place.file("x.pem", "x");
  const std::string url = "--server=rediss://h";
  CHECK(place.usage_error({"inspect", url, "--tls-ca=/nowhere"}) ==
        "--tls-ca: cannot read \"/nowhere\": No such file or directory");
  CHECK(place.usage_error({"inspect", url, "--tls-cert=" + file}) ==
        "--tls-cert: needs the key of the certificate: --tls-key FILE");
  CHECK(place.usage_error({"inspect", url, "--tls-key=" + file}) ==
        "--tls-key: needs the certificate of the key: --tls-cert FILE");
  CHECK(place.usage_error({"inspect", "--server=redis://h", "--tls-ca=" + file}) ==
        "--tls-ca: it goes with rediss, etcds or an https endpoint of s3, and this URL is none");
  const std::string config = place.user("tls-ca = ca.pem");
  CHECK(place.file_error({"inspect", url}) == config + ":1: tls-ca: is not an absolute path");
}

TEST_CASE("replicas are counted of Redis servers alone") {
  Surroundings place;
  const Words words{"acquire", "-kx", "-t1", "--replicas=2", "--server"};
  const auto with = [&](const char* url) {
    Words all = words;
    all.emplace_back(url);
    return all;
  };
  CHECK(place.resolve<AcquireSettings>(with("redis://h")).replicas == 2);
  CHECK(place.usage_error(with("local:")) ==
        "--replicas: only one Redis server, its sentinels or a Cluster have replicas");
  CHECK(place.usage_error({"acquire", "-kx", "-t1", "--replicas=0"}).starts_with("--replicas: "));
}

}  // namespace
}  // namespace dlock
