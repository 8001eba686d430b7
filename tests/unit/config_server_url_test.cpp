#include <doctest/doctest.h>

#include <cstring>
#include <initializer_list>

#include "config/secrets.hpp"
#include "config/server_url.hpp"
#include "unit/config_support.hpp"

namespace dlock {
namespace {

Endpoint redis(const std::string& url) { return std::get<Endpoint>(parse_server_url(url)); }

/// The error of a refused URL; empty if it is valid.
std::string fault(const std::string& url) {
  const auto error = test::error_of([&] { parse_server_url(url); });
  if (!error) return "";
  CHECK(error->first == ErrorKind::usage);
  CHECK(error->second.find('\n') == std::string::npos);
  return error->second;
}

TEST_CASE("a URL of ZooKeeper names servers, a user and a chroot") {
  const auto target = std::get<ZooKeeperTarget>(parse_server_url("zk://u:p@z1,z2:2182/a/b%20c"));
  REQUIRE(target.servers.size() == 2);
  CHECK(target.servers[0].host == "z1");
  CHECK(target.servers[0].port == 2181);
  CHECK(target.servers[1].port == 2182);
  CHECK(target.servers[1].user == "u");
  CHECK(target.chroot == "/a/b c");
  CHECK(target.name() == "zk://z1:2181,z2:2182/a/b c");
  CHECK(std::get<ZooKeeperTarget>(parse_server_url("zk://z1/")).chroot.empty());
}

TEST_CASE("local: names a directory or none") {
  CHECK(parse_server_url("local:") == Target(LocalTarget{}));
  CHECK(parse_server_url("local:/var/lock") == Target(LocalTarget{"/var/lock"}));
  CHECK(parse_server_url("local:/a%20b%25") == Target(LocalTarget{"/a b%"}));
  CHECK(parse_server_url("local:///dir") == Target(LocalTarget{"/dir"}));
  for (const char* bad : {"local:dir", "local://dir", "local:.", "local:~/x"}) {
    CAPTURE(bad);
    CHECK(fault(bad).find("is not an absolute path") != std::string::npos);
  }
  CHECK_FALSE(fault("local:/a?b").empty());
  CHECK_FALSE(fault("local:/a#b").empty());
  CHECK_FALSE(fault("local:?").empty());
  CHECK_FALSE(fault("local:/a%00").empty());
}

TEST_CASE("redis:// has a host, a port of 6379 and database 0 unless told") {
  CHECK(redis("redis://db1") == Endpoint{"db1", 6379, "", 0, {}, {}, {}});
  CHECK(redis("redis://db1/") == Endpoint{"db1", 6379, "", 0, {}, {}, {}});
  CHECK(redis("redis://db1:1/15") == Endpoint{"db1", 1, "", 15, {}, {}, {}});
  CHECK(redis("redis://10.0.0.1:65535") == Endpoint{"10.0.0.1", 65535, "", 0, {}, {}, {}});
  CHECK(redis("redis://a_b.c-d.example./2").host == "a_b.c-d.example.");
}

TEST_CASE("Valkey's schemes are those of Redis, and a line break behind a URL is none of it") {
  CHECK(redis("valkey://h/1") == redis("redis://h/1"));
  CHECK(redis("valkeys://h") == redis("rediss://h"));
  CHECK(parse_server_url("valkey+cluster://h") == parse_server_url("redis+cluster://h"));
  CHECK(redis("redis://h\r\n") == redis("redis://h"));
}

TEST_CASE("an IPv6 address stands in brackets") {
  CHECK(redis("redis://[::1]:6380/3") == Endpoint{"::1", 6380, "", 3, {}, {}, {}});
  CHECK(redis("redis://[::1]").host == "::1");
  CHECK(redis("redis://[fe80::1%25eth0]:1").host == "fe80::1%eth0");
  CHECK(fault("redis://::1").find("brackets") != std::string::npos);
  CHECK(fault("redis://::1:6379").find("brackets") != std::string::npos);
  for (const char* bad : {"redis://[::1", "redis://[]", "redis://[x]", "redis://[127.0.0.1]",
                          "redis://[::1]x", "redis://[::1]6379", "redis://[::1]:"}) {
    CAPTURE(bad);
    CHECK_FALSE(fault(bad).empty());
  }
}

TEST_CASE("user and password are percent-decoded") {
  const Endpoint both = redis("redis://app:p%40s%2Fs%3A@db1:6379/1");
  CHECK(both.user == "app");
  CHECK(both.password == "p@s/s:");
  CHECK(redis("redis://:pw@db1").password == "pw");
  CHECK_FALSE(redis("redis://:pw@db1").user);
  CHECK(redis("redis://app@db1").user == "app");
  CHECK_FALSE(redis("redis://app@db1").password);
  CHECK(redis("redis://a%20b:c%25@db1").user == "a b");
  CHECK(redis("redis://:a:b@db1").password == "a:b");
  CHECK(redis("redis://:a@b@db1").password == "a@b");
  CHECK(redis("redis://:a@b@db1").host == "db1");
}

TEST_CASE("unix:// has an absolute path and perhaps a database") {
  CHECK(redis("unix:///run/redis.sock") == Endpoint{"", 6379, "/run/redis.sock", 0, {}, {}, {}});
  CHECK(redis("unix:///run/redis.sock?db=7").database == 7);
  CHECK(redis("unix:///a%20b%3F").socket_path == "/a b?");
  CHECK(redis("unix:///a@b.sock").socket_path == "/a@b.sock");
  CHECK(redis("unix://u:p@/run/r") == Endpoint{"", 6379, "/run/r", 0, "u", "p", {}});
  CHECK(redis("unix:///" + std::string(106, 'x')).socket_path.size() == 107);
  CHECK(fault("unix:///" + std::string(107, 'x')).find("at most 107 bytes") != std::string::npos);
  CHECK(fault("unix://run/r").find("three slashes") != std::string::npos);
  for (const char* bad :
       {"unix://", "unix:///a?db", "unix:///a?db=", "unix:///a?db=x", "unix:///a?DB=1",
        "unix:///a?db=1&x=2", "unix:///a?x=1", "unix:///a#x", "unix:///a?db=1#x", "unix:///a?db=-1",
        "unix:///a?db=1?db=2", "unix:////a"}) {
    CAPTURE(bad);
    CHECK_FALSE(fault(bad).empty());
  }
}

TEST_CASE("what is wrong with a URL is said") {
  CHECK(fault("redis://") == "the host is missing: redis://HOST[:PORT][/DB]");
  CHECK(fault("redis:///1") == "the host is missing: redis://HOST[:PORT][/DB]");
  CHECK(fault("redis://:6379") == "the host is missing: redis://HOST[:PORT][/DB]");
  CHECK(fault("redis://:pw@") == "the host is missing: redis://HOST[:PORT][/DB]");
  for (const char* port :
       {"0", "65536", "", "99999999999999999999", "password", "-1", "6379x", " 1"}) {
    CHECK(fault("redis://h:" + std::string(port)) ==
          "the port is no number from 1 to 65535; an @ follows a password");
  }
  for (const char* db : {"x", "-1", "1x", "1/", "1/2", "2147483648", " 1", "+1", "0x1"}) {
    CHECK(fault("redis://h/" + std::string(db)) ==
          "invalid database number \"" + std::string(db) + "\" (0, 1, 2, ...)");
  }
  for (const char* bad :
       {"redis://h?db=1", "redis://h/1?x", "redis://h#x", "redis://h/1#x", "redis://h i",
        "redis://h,i", "redis://h\n/1", "redis://\xff", "redis://@h", "redis://:@h", "redis://u:@h",
        "redis://u%:p@h", "redis://u:%zz@h", "redis://u:%00@h", "redis://h%20"}) {
    CAPTURE(bad);
    CHECK_FALSE(fault(bad).empty());
  }
}

TEST_CASE("a wrong scheme is refused, with what was meant") {
  CHECK(fault("rdis://h") == "unknown scheme rdis://: did you mean redis://?");
  CHECK(fault("REDIS://h").starts_with("unknown scheme REDIS://"));
  CHECK(fault("\"redis://h\"") == "the URL begins with a quote");
  CHECK(fault("tcp://h") == "unknown scheme tcp://: did you mean redis://?");
  CHECK(fault("unxi:///a") == "unknown scheme unxi://: did you mean unix://?");
  CHECK(fault("http://h").starts_with("unknown scheme http://: it is one of local: redis:// "));
  CHECK(fault("://h").starts_with("unknown scheme ://"));
  for (const char* bad : {"", "localhost", "localhost:6379", "/run/r.sock", "redis:h", "unix:/a",
                          "local", "redis:/h", " redis"}) {
    CAPTURE(bad);
    CHECK(fault(bad).find("expected local:[/DIR], redis://") != std::string::npos);
  }
  CHECK(fault("/run/r.sock").ends_with("[?db=N]"));
  for (const char* bad : {"rediss+redlock://h", "unix+sentinel:///h/m", "redis+://h"}) {
    CAPTURE(bad);
    CHECK(fault(bad).starts_with("unknown scheme "));
  }
}

/// Checks that each URL is refused, without a word of its password.
void are_refused(std::initializer_list<const char*> urls) {
  for (const char* url : urls) {
    CAPTURE(url);
    CHECK_FALSE(fault(url).empty());
    CHECK(fault(url).find("sekret") == std::string::npos);
  }
}

TEST_CASE("no message shows what stands before an @") {
  are_refused({"redis://u:sekret@", "redis://u:sekret@h:x", "redis://u:sekret@h/x",
               "redis://:sekret@h?x", "redis://:sekret@h/1/2", "redis://sekret@h:0",
               "redis://:sec/sekret@h", "redis://:a?sekret@h", "redis://:a#sekret@h",
               "redis://:%sekret@h"});
  are_refused({"redis://:sekret%@h", "redis://:sekret@[x]", "redis://:sekret@::1",
               "redis://:sekret@a@h:x", "redis://:1/sekret@h", "redis://u:sekret/x@h",
               "redis://u:sekret?x@h"});
  are_refused({"unix://:sekret@run", "unix://:sec/sekret@/run", "unix://:sekret@/run?x",
               "unix://:sekret@/run?db=x", "unix://:sec?sekret@/run", "unix://u:sekret/x@/run"});
  are_refused({"rdis://:sekret@h", "rediss://:sekret@h:x", "redis+sentinel://:sekret@h",
               "rediss+sentinel://u:sekret@h,/m", "redis+cluster://:sekret@h/1", "redis:sekret@h",
               ":sekret@h", "sekret@h", "local:sekret@h", "postgres:///u:sekret@h/db",
               "mysql:///u:sekret@h/db"});
  CHECK_FALSE(fault("secret://x@h").empty());
}

TEST_CASE("a server is named without user and password, and escaped") {
  CHECK(redis("redis://u:p@db1").name() == "redis://db1:6379");
  CHECK(redis("redis://:p@[::1]:1/2").name() == "redis://[::1]:1/2");
  CHECK(redis("rediss://u:p@db1/2").name() == "rediss://db1:6379/2");
  CHECK(redis("unix://u:p@/run/r%0A?db=3").name() == "unix:///run/r\\x0A?db=3");
}

TEST_CASE("rediss:// is redis:// under TLS") {
  CHECK(redis("rediss://u:p@db1:1/2") == Endpoint{"db1", 1, "", 2, "u", "p", TlsSettings{}});
  CHECK_FALSE(redis("redis://db1").tls);
}

TEST_CASE("redis+sentinel:// names sentinels, a master, and how to log in to that") {
  const auto target = std::get<SentinelTarget>(
      parse_server_url("redis+sentinel://app:pw@s1,s2:5,[::1]:6/my-master_1.x/3"));
  CHECK(target.sentinels.size() == 3);
  CHECK(target.sentinels[0] == Endpoint{"s1", 26379, "", 0, {}, {}, {}});
  CHECK(target.sentinels[1].port == 5);
  CHECK(target.sentinels[2] == Endpoint{"::1", 6, "", 0, {}, {}, {}});
  CHECK(target.master_name == "my-master_1.x");
  CHECK(target.master == Endpoint{"", 6379, "", 3, "app", "pw", {}});
  const auto secure = std::get<SentinelTarget>(parse_server_url("rediss+sentinel://s1/m"));
  CHECK(secure.master.tls);
  CHECK(secure.sentinels.front().tls);
  CHECK(secure.master.database == 0);
  for (const char* bad :
       {"redis+sentinel://s1", "redis+sentinel://s1/", "redis+sentinel://s1//1",
        "redis+sentinel://s1/m/x", "redis+sentinel://s1/m/1/2", "redis+sentinel:///m",
        "redis+sentinel://,/m", "redis+sentinel://s1,/m", "redis+sentinel://s1,s1/m",
        "redis+sentinel://s1/m?db=1", "redis+sentinel://s1 s2/m"}) {
    CAPTURE(bad);
    CHECK_FALSE(fault(bad).empty());
  }
}

TEST_CASE("a PostgreSQL URL goes to libpq as it is, and is shown without login and parameters") {
  const auto parsed = [](const std::string& url) {
    return std::get<SqlTarget>(parse_server_url(url));
  };
  const std::string url = "postgres://app:sekret@db1,db2:5433/shop?sslmode=verify-full&options=%20";
  CHECK(parsed(url).url == url);
  CHECK(parsed(url).shown == "postgres://db1,db2:5433/shop");
  CHECK(parsed(url).password == "sekret");
  CHECK(parsed("postgresql://app@h/db").shown == "postgres://h/db");
  CHECK_FALSE(parsed("postgresql://app@h/db").password);
  const auto query = parsed("postgres:///db?user=u&password=sekret&host=/run/pg&port=5433");
  CHECK(query.shown == "postgres:///db?host=/run/pg&port=5433");
  CHECK(query.password == "sekret");
  CHECK(parsed("postgres://").shown == "postgres://");
  CHECK(fault("postgres://u:a/b@h/db").find("sekret") == std::string::npos);
  CHECK(fault("postgres://u:se#kret@h/db").find("%23") != std::string::npos);
  CHECK(fault("postgre://h/db").find("postgres://") != std::string::npos);
}

TEST_CASE("an etcd URL names members, and is shown without the login") {
  const auto parsed = [](const std::string& url) {
    return std::get<EtcdTarget>(parse_server_url(url));
  };
  const auto full = parsed("etcd://app:se%40kret@e1,[::1]:4001");
  REQUIRE(full.servers.size() == 2);
  CHECK(full.name() == "etcd://e1:2379,[::1]:4001");
  CHECK(full.servers[1].password == "se@kret");
  CHECK(!full.servers[0].tls);
  CHECK(parsed("etcds://e1/").servers[0].tls == TlsSettings{});
  CHECK(parsed("etcds://e1").name() == "etcds://e1:2379");
  for (const char* bad : {"etcd://", "etcd://e1,", "etcd://e1,e1", "etcd://e1/x", "etcd://e1?x=1",
                          "etcd://:sekret@e1", "etcd://e1:x", "etcd://u:a/sekret@e1"}) {
    CAPTURE(bad);
    CHECK(!fault(bad).empty());
    CHECK(fault(bad).find("sekret") == std::string::npos);
  }
}

TEST_CASE("a MySQL or MariaDB URL is taken apart, and is shown without login and TLS files") {
  const auto parsed = [](const std::string& url) {
    return std::get<SqlTarget>(parse_server_url(url));
  };
  const auto parts = [&](const std::string& url) { return parsed(url).mysql.value(); };
  using Tls = MysqlAddress::Tls;
  const auto full = parsed("mysql://app:se%40kret@db1:3307/shop?ssl-mode=REQUIRED");
  CHECK(full.mysql == MysqlAddress{"db1", 3307, "", "shop", "app", {}, Tls::encrypted});
  CHECK(full.shown == "mysql://db1:3307/shop");
  CHECK(full.password == "se@kret");
  CHECK(parts("mariadb://[::1]/d") == MysqlAddress{"::1", 0, "", "d"});
  CHECK_FALSE(parsed("mariadb://app@h/d").password);
  const auto by_socket = parsed("mariadb:///d?socket=/run/m.sock");
  CHECK(by_socket.mysql == MysqlAddress{"", 0, "/run/m.sock", "d"});
  CHECK(by_socket.shown == "mariadb:///d?socket=/run/m.sock");
  CHECK(parts("mysql://h/d?ssl-mode=DISABLED").tls == Tls::off);
  CHECK(parts("mysql://h/d?ssl-ca=/ca").tls == Tls::verified);
  CHECK(parts("mysql://h/d?ssl-mode=VERIFY_CA&ssl-ca=/ca").ca == "/ca");
  const auto own = parts("mysql://h/d?ssl-mode=VERIFY_IDENTITY&ssl-cert=/c&ssl-key=/k");
  CHECK(own.certificate == "/c");
  CHECK(own.key == "/k");
  for (const char* bad :
       {"mysql://h", "mysql://h/", "mysql://", "mysql://h/d?nonsense=1", "mysql://h/d?ssl-mode=yes",
        "mysql://h/d?ssl-ca=ca.pem", "mysql://h/d?ssl-mode=REQUIRED&ssl-ca=/ca", "mysql://h:x/d",
        "mysql://h,g/d", "mysql://@h/d", "mysql://h/d?socket=/s", "mysql://u:se#kret@h/d",
        "mysql://u:a/sekret@h/d", "mysql://h/%zz"}) {
    CAPTURE(bad);
    CHECK(!fault(bad).empty());
    CHECK(fault(bad).find("sekret") == std::string::npos);
  }
  CHECK(fault("mysql://h/d?sock=/s").starts_with("\"sock\" after the ? is none of socket, "));
  CHECK(fault("mysq://h/d").find("mysql://") != std::string::npos);
}

TEST_CASE("redis+cluster:// names some of the nodes") {
  const auto target =
      std::get<ClusterTarget>(parse_server_url("rediss+cluster://app:pw@n1,n2:7001"));
  CHECK(target.seeds.size() == 2);
  CHECK(target.seeds[0] == Endpoint{"n1", 6379, "", 0, "app", "pw", TlsSettings{}});
  CHECK(target.seeds[1] == Endpoint{"n2", 7001, "", 0, "app", "pw", TlsSettings{}});
  CHECK(parse_server_url("redis+cluster://n1/0") == parse_server_url("redis+cluster://n1"));
  CHECK(fault("redis+cluster://n1/1") ==
        "a Cluster has database 0 only: redis+cluster://HOST[:PORT],...");
  for (const char* bad : {"redis+cluster://", "redis+cluster://n1/x", "redis+cluster://n1,,n2",
                          "redis+cluster://n1:0", "redis+cluster://n1#x"}) {
    CAPTURE(bad);
    CHECK_FALSE(fault(bad).empty());
  }
}

TEST_CASE("text that may be a URL is shown without what stands before its last @") {
  CHECK(redacted("redis://u:p@h") == "redis://***@h");
  CHECK(redacted("redis://u:p@q@h") == "redis://***@h");
  CHECK(redacted(":pw@h") == "***@h");
  CHECK(redacted("pw@h://x") == "***@h://x");
  CHECK(redacted("plain\x1b") == "plain\\x1B");
  CHECK(in_quotes("pg://h/d?password=p&x=y") == "\"pg://h/d?password=***&x=y\"");
  CHECK(in_quotes("pg://u:p@h/d?password=p") == "\"pg://***@h/d?password=***\"");
  CHECK(in_quotes("pg://h/?password=xpassword=y&password=z") ==
        "\"pg://h/?password=***&password=***\"");
  CHECK(in_quotes("a@b") == "\"a@b\"");
  CHECK(in_quotes("redis://a@b") == "\"redis://***@b\"");
  CHECK(in_quotes(std::string(79, 'x') + "\xc3\xa4x") == "\"" + std::string(79, 'x') + "...\"");
}

TEST_CASE("a password in a URL is noticed") {
  CHECK(holds_password("redis://u:p@h"));
  CHECK(holds_password("redis://:p@h"));
  CHECK(holds_password("rediss://:p@h"));
  CHECK_FALSE(holds_password("redis://u@h"));
  CHECK_FALSE(holds_password("redis://h:1"));
  CHECK_FALSE(holds_password("local:"));
  CHECK(holds_password("postgres://h/db?user=u&password=p"));
  CHECK(holds_password("postgres:///db?sslpassword=p"));
  CHECK_FALSE(holds_password("postgres://h/db?user=u"));
}

TEST_CASE("what PostgreSQL's library would quote with its password is refused before") {
  for (const char* url : {"postgres://app:s3%cret@db/shop", "postgres://s3%cret@db/shop",
                          "postgres://app:s3cret@[::1]5432/shop", "postgres://app:s3cret@[::1/shop",
                          "postgres://app:s3cret@[]/shop", "postgres://app:s3cret@a:b:c/shop",
                          "postgres://app:s3cret/shop", "postgres://h/db?password=s3%cret",
                          "postgres://h/db?s3cret", "postgres://h/db?password=s3%00cret",
                          "postgres://app:s3cret@h/d%b", "postgres://app:s3@cret@h/db",
                          "postgres://app:s3cret@h,i:x/db", "postgres://h/db?sslrootcert=ca.pem"}) {
    CAPTURE(url);
    const std::string line = fault(url);
    CHECK(line != "");
    CHECK(line.find("s3") == std::string::npos);
  }
  for (const char* url :
       {"postgres://u:p%25@[::1]:5432,h:5433,i/db?options=%20", "postgres://%2Frun%2Fpg/db",
        "postgres://h:/db", "postgresql:///db?host=/run/pg",
        "postgres://h/db?sslrootcert=system&sslkey=/etc/key"}) {
    CAPTURE(url);
    CHECK(fault(url) == "");
  }
}

std::vector<std::string> scrubbed(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  scrub_secrets(static_cast<int>(argv.size()), argv.data());
  return words;
}

TEST_CASE("the keys and secrets that PostgreSQL's library reads are hidden as its passwords are") {
  for (const char* name : {"oauth_client_secret", "scram_client_key", "scram_server_key"}) {
    CAPTURE(name);
    const std::string begin = std::string("postgres://h/db?user=u&") + name + "=";
    CHECK(holds_password(begin + "p"));
    CHECK(redacted(begin + "p&sslmode=require") == begin + "***&sslmode=require");
    CHECK(scrubbed({"dlock", "doctor", "--server", begin + "pqr&sslmode=require"})[3] ==
          begin + "***&sslmode=require");
  }
  CHECK_FALSE(holds_password("postgres://h/db?sslkey=/k&oauth_client_id=i&options=_secret"));
}

TEST_CASE("a password is known in a parameter whose name is percent-encoded") {
  const std::string url = "postgres://h/db?user=u&p%61ssword=c2Vj&h%6fst=/run/pg";
  const auto target = std::get<SqlTarget>(parse_server_url(url));
  CHECK(target.password == "c2Vj");
  CHECK(target.shown == "postgres://h/db?host=/run/pg");
  CHECK(holds_password(url));
  CHECK(redacted(url) == "postgres://h/db?user=u&p%61ssword=***&h%6fst=/run/pg");
}

TEST_CASE("tokens are overwritten in argv, but not behind what ends the options") {
  const auto words = scrubbed({"dlock", "renew", "--token", "cron/17", "--token=cron/17", "-k",
                               "--token-file", "--", "--token", "cron/17"});
  CHECK(words[2] == "--token");
  CHECK(words[3] == "*******");
  CHECK(words[4] == "--token=*******");
  CHECK(words[6] == "--token-file");
  CHECK(words[9] == "cron/17");
}

TEST_CASE("passwords are overwritten in argv, and nothing else") {
  const auto words = scrubbed(
      {"dlock", "run", "--server", "redis://app:secret@db1/0", "--server=redis://:secret@db1",
       "--serverr=rediss://:se/secret@db1", "redis://db1:6379", "mail@host", "mail@host://x",
       "postgres://h/db?password=secret&user=u&sslpassword=s#x", "a?password=secret", ""});
  CHECK(words[3] == "redis://**********@db1/0");
  CHECK(words[4] == "--server=redis://*******@db1");
  CHECK(words[5] == "--serverr=rediss://**********@db1");
  CHECK(words[9] == "postgres://h/db?password=******&user=u&sslpassword=*#x");
  CHECK(words[10] == "a?password=secret");
  CHECK(words[2] == "--server");
  CHECK(words[6] == "redis://db1:6379");
  CHECK(words[7] == "mail@host");
  CHECK(words[8] == "mail@host://x");
  CHECK(words[11].empty());
}

}  // namespace
}  // namespace dlock
