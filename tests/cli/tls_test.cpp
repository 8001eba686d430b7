// TLS with the real binary: all features work as they do without.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <optional>

#include "base/error.hpp"
#include "cli/attached.hpp"
#include "cli/line.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/patient_start.hpp"
#include "support/scene.hpp"
#include "support/tls_redis.hpp"

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

}  // namespace dlock::test
