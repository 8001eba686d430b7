// TLS with the real binary: refusals by either side, with their exit codes and messages.

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <thread>

#include "cli/place.hpp"
#include "support/fake_server.hpp"
#include "support/files.hpp"
#include "support/skip.hpp"
#include "support/stretched.hpp"
#include "support/tls_files.hpp"

namespace dlock::test {
namespace {

/// An inspect of a key with these options, its exit code and its one line.
struct Look {
  std::vector<std::string> options;
  int code;
  std::string says;
};

Process start_look(const ProcessOptions& environment, const Look& look) {
  std::vector<std::string> words{"inspect", "-k", "a"};
  words.insert(words.end(), look.options.begin(), look.options.end());
  return start_dlock(words, environment);
}

/// Runs all of them at once.
void check_looks(const ProcessOptions& environment, const std::vector<Look>& looks) {
  std::vector<Process> processes;
  for (const Look& look : looks) processes.push_back(start_look(environment, look));
  for (std::size_t i = 0; i < looks.size(); ++i) {
    Result result = processes[i].wait();
    // A server that hangs up between two steps of dlock causes another message.
    const auto may_differ = [&] {
      return (result.exit_code == looks[i].code || result.exit_code == 69) &&
             !holds(result.err, looks[i].says);
    };
    for (int tries = 1; may_differ() && tries < 5; ++tries) {
      result = start_look(environment, looks[i]).wait();
    }
    CAPTURE(looks[i].says);
    check_says(result, looks[i].code, looks[i].says);
    const bool refused = looks[i].code != 0;
    CHECK(is_one_message(result.err) == refused);
    CHECK((result.out == "") == refused);
    CHECK(result.duration < stretched(milliseconds(6000)));
  }
}

/// Checks that nothing runs and no key is locked; a `run` represents all commands, as they fail
/// alike.
void check_never_runs(const ProcessOptions& environment, int code) {
  const auto result = dlock({"run", "-k", "a", "--", "echo", "ran"}, environment);
  CHECK(result.exit_code == code);
  CHECK(result.out == "");
}

}  // namespace

TEST_CASE("tls: a server is believed what its certificate proves and nothing else, 77") {
  const TlsRedis redis;
  const auto environment = redis.with_server();
  const std::string port = std::to_string(redis.server.tls_port());
  redis.set("bind", "127.0.0.1 127.0.0.2");
  const TestCa other("Other CA");
  const std::string by_test_ca = "comes from the CA CN=Test CA, which is not among those ";
  const std::string names = "is for DNS:localhost, IP Address:127.0.0.1, not for ";
  check_looks(
      environment,
      {{{}, 0, ""},
       {{"--server", "rediss://localhost:" + port}, 0, ""},
       {{"--tls-ca", redis.ca.hashed_directory()}, 0, ""},
       {{"--tls-server-name", "localhost."}, 0, ""},
       {{"--tls-server-name", "localhost"}, 0, ""},
       {{"--tls-ca", other.file()}, 77, by_test_ca + "in " + other.file()},
       {{"--server", "rediss://127.0.0.2:" + port}, 77, names + "127.0.0.2: if it is the right"},
       {{"--tls-server-name", "db1.example"}, 77, names + "db1.example"},
       {{"--tls-server-name", "127.0.0.9"}, 77, names + "127.0.0.9"},
       {{"--tls-server-name", "LOCALHOST"}, 0, ""},
       {{"--server", "rediss://.:" + port}, 69, "cannot look up ."}});
  auto trusting_system = environment;
  trusting_system.env.erase("DLOCK_TLS_CA");
  check_looks(trusting_system, {{{}, 77, by_test_ca + "this system trusts: give"}});
  trusting_system.env["SSL_CERT_FILE"] = redis.ca.file();
  check_looks(trusting_system, {{{}, 0, ""}});

  redis.show(redis.ca.self_signed("localhost"));
  check_looks(environment,
              {{{}, 77, "certificate (CN=localhost) is signed by itself and not among those in "},
               {{"--tls-ca", redis.ca.dir() / "localhost.pem"}, 0, ""}});
  redis.show(redis.ca.issue("old", loopback_names, -1));
  check_looks(environment, {{{}, 77, "the server's certificate expired at 20"}});
  redis.show(redis.ca.issue("wild", "DNS:*.corp.example,DNS:x*.corp.local"));
  check_looks(environment,
              {{{"--tls-server-name", "db1.corp.example"}, 0, ""},
               {{"--tls-server-name", "a.db1.corp.example"}, 77, "not for a.db1.corp.example"},
               {{"--tls-server-name", "xa.corp.local"}, 77, "not for xa.corp.local"},
               {{}, 77, "is for DNS:*.corp.example, DNS:x*.corp.local, not for 127.0.0.1"}});
  check_never_runs(environment, 77);
}

TEST_CASE("tls: what the system trusts is found where another distribution keeps it") {
  const TlsRedis redis;
  auto environment = redis.with_server();
  environment.env.erase("DLOCK_TLS_CA");
  environment.env["D"] = dlock_path();
  const auto run_in = [&](const TempDir& etc_ssl) {
    environment.env["SYSTEM"] = etc_ssl.path();
    const std::string line =
        R"(mount --bind "$SYSTEM" /etc/ssl || exit 99; exec "$D" run -k k -- true)";
    return run({"unshare", "-m", "sh", "-c", line}, clean(environment));
  };
  const TempDir of_suse, of_alpine, of_nobody;
  write_file(of_suse / "ca-bundle.pem", read_file(redis.ca.file()));
  write_file(of_alpine / "cert.pem", read_file(redis.ca.file()));
  const Result trusted = run_in(of_suse);
  if (skip_if(trusted.exit_code == 99 || trusted.err.find("unshare") != std::string::npos,
              "no mount here"))
    return;
  CAPTURE(trusted.err);
  CHECK(trusted.exit_code == 0);
  CHECK(run_in(of_alpine).exit_code == 0);
  CHECK(run_in(of_nobody).exit_code == 77);
}

TEST_CASE("tls: client certificates are asked for and refused in words, 77, with TLS 1.3 and 1.2") {
  const TlsRedis redis;
  const TestCa other("Other CA");
  const auto environment = redis.with_server();
  const auto shown = [](const Certificate& own) {
    return std::vector<std::string>{"--tls-cert", own.file, "--tls-key", own.key};
  };
  const auto good = redis.ca.issue("client", "DNS:client");
  const auto old = redis.ca.issue("old", "DNS:client", -1);
  const auto foreign = other.issue("foreign", "DNS:client");
  redis.set("tls-auth-clients", "yes");
  for (const char* protocol : {"TLSv1.3", "TLSv1.2"}) {
    redis.set("tls-protocols", protocol);
    check_looks(environment,
                {{{}, 77, "wants a client certificate: give one by --tls-cert and --tls-key"},
                 {shown(good), 0, ""},
                 {shown(old), 77,
                  "refuses the client certificate in " + old.file +
                      " (it said: certificate expired), which expires at 20"},
                 {shown(foreign), 77,
                  "refuses the client certificate in " + foreign.file + " (it said: unknown CA)"}});
  }
  check_never_runs(environment, 77);
}

TEST_CASE("tls: files that hold something else are refused by name, 64") {
  umask(077);  // else dlock warns that others may read the keys
  const TlsRedis redis;
  const auto environment = redis.with_server();
  const auto own = redis.ca.issue("client", "DNS:client");
  const TempDir dir;
  const std::string key_text = read_file(own.key);
  write_file(dir / "both", read_file(own.file) + key_text);
  write_file(dir / "empty", "");
  write_file(dir / "text", "hello\n");
  write_file(dir / "torn", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
  write_file(dir / "torn-key", "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n");
  REQUIRE(run({"openssl", "pkey", "-in", own.key, "-aes256", "-passout", "pass:x", "-out",
               dir / "locked"})
              .exit_code == 0);
  const auto shown = [](const std::string& certificate, const std::string& key) {
    return std::vector<std::string>{"--tls-cert", certificate, "--tls-key", key};
  };
  const auto says = [](const char* option, const std::string& file, const char* what) {
    return std::string(option) + ": " + file + " " + what;
  };
  check_looks(
      environment,
      {{shown(own.file, own.key), 0, ""},
       {shown(dir / "both", dir / "both"), 0, ""},
       {{"--tls-ca", dir / "both"}, 77, "which is not among those in"},
       {{"--tls-ca", own.key}, 64, says("--tls-ca", own.key, "holds no CERTIFICATE in PEM")},
       {{"--tls-ca", dir / "empty"}, 64, says("--tls-ca", dir / "empty", "is empty")},
       {{"--tls-ca", dir / "text"}, 64, says("--tls-ca", dir / "text", "holds no CERTIFICATE")},
       {{"--tls-ca", dir / "torn"}, 64, says("--tls-ca", dir / "torn", "cannot be read: ")},
       {{"--tls-ca", dir.path()}, 64, says("--tls-ca", dir.path(), "holds no certificates under")},
       {{"--tls-ca", "/dev/null"}, 64, says("--tls-ca", "/dev/null", "is not a file")},
       {shown(own.key, own.file), 64, says("--tls-cert", own.key, "holds no CERTIFICATE in PEM")},
       {shown(dir / "torn", own.key), 64, says("--tls-cert", dir / "torn", "cannot be read: ")},
       {shown(dir.path(), own.key), 64, says("--tls-cert", dir.path(), "is not a file")},
       {shown(own.file, own.file), 64, says("--tls-key", own.file, "holds no PRIVATE KEY in PEM")},
       {shown(own.file, dir / "torn-key"), 64, says("--tls-key", dir / "torn-key", "cannot be")},
       {shown(own.file, dir / "locked"), 64,
        says("--tls-key", dir / "locked", "holds an encrypted private key")},
       {shown(own.file, redis.own.key), 64,
        says("--tls-key", redis.own.key, "holds the key of another certificate than ")}});
  auto without_library = environment;
  write_file(dir / "libssl.so.3", "no library");
  without_library.env["LD_LIBRARY_PATH"] = dir.path();
  check_looks(without_library, {{{}, 71, "TLS needs OpenSSL, on Debian the package libssl3"}});
}

TEST_CASE("tls: who takes one for the other of redis and rediss is told so, 69") {
  const TlsRedis redis({.tcp = true});
  const auto environment = redis.with_server();
  const std::string port = std::to_string(redis.server.tls_port());
  FakeServer closing(std::vector{hang_up()}, true, hang_up());
  FakeServer resetting(std::vector{say_and_reset("")}, true);
  const auto at = [](const char* scheme, const FakeServer& fake) {
    return std::vector<std::string>{
        "--server", scheme + std::string("://127.0.0.1:") + std::to_string(fake.address().port)};
  };
  check_looks(environment,
              {{{"--server", "redis://127.0.0.1:" + port}, 69, "it speaks TLS: write rediss://"},
               {{"--server", "rediss://127.0.0.1:" + std::to_string(redis.server.port())},
                69,
                "it does not speak TLS"},
               // A server that merely closes the connection gets no such diagnosis.
               {at("redis", closing), 69, ": the server closed the connection\n"},
               {at("redis", resetting), 69, ": the connection broke: Connection reset by peer\n"},
               {at("rediss", closing), 69, "during the TLS handshake"},
               {at("rediss", resetting), 69, "during the TLS handshake"}});
  FakeServer talking(std::vector{silence()}, true, say("-ERR max number of clients reached\r\n"));
  FakeServer alarming(std::vector{say(std::string("\x15\x03\x01\x00\x02\x02\x46", 7))}, true);
  check_looks(environment, {{at("rediss", talking), 69, "it does not speak TLS"},
                            {at("redis", alarming), 69, "it speaks TLS: write rediss://"},
                            {at("rediss", alarming), 69, "no TLS that is new enough"}});
  redis.set("tls-ciphers", "DEFAULT:@SECLEVEL=0");
  redis.set("tls-protocols", "TLSv1.1");
  check_looks(environment, {{{}, 69, "the server speaks no TLS that is new enough, which is 1.2"}});
}

TEST_CASE(
    "tls: a handshake that stalls, at its start or in the middle, is 69 within the deadline") {
  FakeServer mute(std::vector{silence()}, true);
  FakeServer halting(std::vector{say("\x16\x03\x03\x00\x7a\x02")}, true);
  for (const FakeServer* fake : {&mute, &halting}) {
    const auto result =
        dlock({"run", "-k", "a", "-t", "3s", "--server",
               "rediss://127.0.0.1:" + std::to_string(fake->address().port), "--", "echo", "ran"});
    check_says(result, 69, "no answer to the TLS handshake in time");
    CHECK(result.out == "");
    CHECK(result.duration < stretched(milliseconds(4500)));
  }
}

}  // namespace dlock::test
