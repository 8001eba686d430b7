#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/place.hpp"
#include "lock/store.hpp"
#include "support/fake_server.hpp"
#include "support/files.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

using Words = std::vector<std::string>;

/// `waiting` has the wait options of the commands that acquire a lock.
std::vector<Words> all_commands(const Words& waiting) {
  std::vector<Words> all{{"run", "-k", "a"}, {"acquire", "-k", "a", "-t", "1m"}};
  for (Words& words : all) words.insert(words.end(), waiting.begin(), waiting.end());
  all[0].insert(all[0].end(), {"--", "echo", "ran"});
  all.insert(all.end(), {{"renew", "a", "--token", "t"},
                         {"release", "a", "--token", "t"},
                         {"release", "a", "--force"},
                         {"inspect", "a"},
                         {"inspect"}});
  return all;
}

void check_fails(const std::string& url, const std::vector<std::string>& words, int code,
                 const std::string& says, milliseconds within) {
  ProcessOptions options;
  options.env["DLOCK_SERVER"] = url;
  const auto result = dlock(words, options);
  CAPTURE(words[0]);
  check_message(result, code, url.substr(0, url.find('?')));
  CHECK(holds(result.err, says));
  CHECK(result.duration < stretched(within));
}

/// Whether it is the SCAN for dlock's own keys, not for those of other libraries.
bool scans_for_own_keys(const std::vector<std::string>& words) {
  return words.front() == "SCAN" && std::find(words.begin(), words.end(), "MATCH") != words.end();
}

/// The page at `cursor` of a SCAN that takes longer than the silence that marks a dead server. The
/// cursor encodes the start of the SCAN.
std::string page_of_long_scan(const std::string& cursor) {
  constexpr long long pages_a_millisecond = 1'000'000;
  constexpr milliseconds lasts = silence_of_a_dead_server + milliseconds(300);
  const auto now = std::chrono::floor<milliseconds>(BootClock::now().time_since_epoch()).count();
  const long long at = cursor == "0" ? now * pages_a_millisecond : std::stoll(cursor);
  const bool ends = now - at / pages_a_millisecond > lasts.count();
  return "*2\r\n+" + std::to_string(ends ? 0 : at + 1) + "\r\n*0\r\n";
}

void check_all_fail(const std::string& url, int code, const std::string& says,
                    const Words& waiting = {}) {
  for (const Words& words : all_commands(waiting)) {
    check_fails(url, words, code, says, milliseconds(5000));
  }
}

TEST_CASE("bad server: nobody there") {
  const TempDir dir;
  check_all_fail("unix://" + (dir / "no.sock"), 69, "cannot connect: No such file or directory");
  const UnusedPort closed;
  check_all_fail(Address{"", closed.number()}.url(), 69, "cannot connect: Connection refused");
  write_file(dir / "file", "");
  check_all_fail("unix://" + (dir / "file"), 69, "cannot connect: ");
  check_fails("redis://no-such-host.invalid", {"inspect"}, 69, "no-such-host.invalid",
              milliseconds(8000));
}

TEST_CASE("bad server: one whose name cannot be looked up for lack of a thread") {
  const ProcessOptions options{.env = {{"DLOCK_SERVER", "redis://no-such-host.invalid"}},
                               .before_exec = [] {
                                 const rlimit less_than_a_stack{6UL << 20, 6UL << 20};
                                 setrlimit(RLIMIT_DATA, &less_than_a_stack);
                               }};
  check_message(dlock({"inspect"}, options), 69, "cannot look up no-such-host.invalid: ");
}

TEST_CASE("bad server: one that is silent counts as unreachable after 5 s, or ttl/6 if less") {
  const Place place(Engine::redis);
  const auto holder = place.hold("a", {"-t", "1h"});
  place.server().stop();
  const auto begun = BootClock::now();
  check_fails(place.url(), {"run", "-t", "1.2s", "-k", "b", "--", "true"}, 69, "no answer",
              milliseconds(4500));
  check_fails(place.url(), {"acquire", "-t", "600ms", "-n", "b"}, 69, "no answer",
              milliseconds(4500));
  check_fails(place.url(), {"inspect", "b"}, 69, "no answer", milliseconds(9500));
  CHECK(BootClock::now() - begun > milliseconds(5000));
  place.server().cont();
}

TEST_CASE("bad server: each kind of refusal has its code and its words") {
  struct Refusal {
    const char* said;
    int code;
    const char* told;
    Words waiting{"-w", "10"};
  };
  const Words not_at_all{"-n"};  // with -w, dlock would wait for a server that says later
  const std::vector<Refusal> refusals{
      {"-LOADING Redis is loading the dataset in memory", 69, "still loading", not_at_all},
      {"-OOM command not allowed when used memory > 'maxmemory'.", 69, "out of memory"},
      {"-MISCONF Redis is configured to save RDB snapshots", 69, "cannot save to disk"},
      {"-BUSY Redis is busy running a script.", 69, "busy", not_at_all},
      {"-NOREPLICAS Not enough good replicas to write.", 69, "too few replicas"},
      {"-MASTERDOWN Link with MASTER is down", 69, "replica that has lost its master"},
      {"-CLUSTERDOWN The cluster is down", 69, "Cluster is down"},
      {"-TRYAGAIN Multiple keys request during rehashing of slot", 69, "Cluster is moving the key"},
      {"-MOVED 3999 127.0.0.1:6381", 69, "Cluster node"},
      {"-ASK 3999 127.0.0.1:6381", 69, "Cluster node"},
      {"-READONLY You can't write against a read only replica.", 69, "read-only replica"},
      {"-ERR max number of clients reached", 69, "too many clients", not_at_all},
      {"-ERR unknown command 'EVALSHA'", 69, "the server runs no scripts"},
      {"-ERR unknown command `EVALSHA`, with args beginning with: ", 69, "runs no scripts"},
      {"-ERR unknown command 'SCAN'", 69, "lacks a command"},
      {"-ERR DB index is out of range", 69, "no such database"},
      {"-ERR \x1b[31msomething else\x07", 69, "something else"},
      {"-NOAUTH Authentication required.", 77, "password"},
      {"-WRONGPASS invalid username-password pair", 77, "password"},
      {"-NOPERM this user has no permissions", 77, "ACL"},
      {"-DENIED Redis is running in protected mode", 77, "protected mode"},
      {"-WRONGTYPE Operation against a key", 65, "not a lock"},
      {"HTTP/1.1 400 Bad Request", 69, "not that of a Redis server"},
  };
  for (const auto& refusal : refusals) {
    CAPTURE(refusal.said);
    FakeServer server(std::vector<Step>{say(std::string(refusal.said) + "\r\n")});
    Words run{"run", "-k", "a"};
    run.insert(run.end(), refusal.waiting.begin(), refusal.waiting.end());
    run.insert(run.end(), {"--", "echo", "ran"});
    for (const Words& words : {run, Words{"release", "a", "--token", "t"}}) {
      check_fails(server.url(), words, refusal.code, refusal.told, milliseconds(5000));
    }
  }
}

TEST_CASE("bad server: one that says later is waited for, and -n asks once") {
  for (const char* said :
       {"-LOADING Redis is loading the dataset in memory", "-BUSY Redis is busy running a script.",
        "-ERR max number of clients reached"}) {
    CAPTURE(said);
    FakeServer server(std::vector<Step>{say(std::string(said) + "\r\n")});
    const ProcessOptions options{.env = {{"DLOCK_SERVER", server.url()}}};
    auto waiter = start_dlock({"run", "-k", "a", "--", "true"}, options);
    CHECK(eventually([&] { return holds(waiter.err(), "; still waiting, trying again\n"); }));
    CHECK(dlock({"run", "-k", "a", "-n", "--", "true"}, options).exit_code == 69);
    CHECK(waiter.running());
    waiter.signal(SIGTERM);
    waiter.wait();
  }
}

TEST_CASE("bad server: one that is no Redis") {
  const std::vector<std::string> rubbish{
      "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>",
      "SSH-2.0-OpenSSH_9.2p1\r\n",
      "+OK\r\n",
  };
  for (const auto& bytes : rubbish) {
    CAPTURE(bytes);
    FakeServer server(std::vector<Step>{say_and_close(bytes)});
    check_all_fail(server.url(), 69, "");
    FakeServer greeting(std::vector<Step>{silence()}, false, say_and_close(bytes));
    check_fails(greeting.url(), {"run", "-k", "a", "--", "echo", "ran"}, 69, "",
                milliseconds(5500));
  }
}

TEST_CASE("bad server: half a reply, a closed and a reset connection") {
  for (const std::string half : {"", "*3\r\n$7\r\ngran"}) {
    CAPTURE(half);
    FakeServer closing(std::vector<Step>{say_and_close(half)});
    check_all_fail(closing.url(), 69, "closed the connection");
    FakeServer resetting(std::vector<Step>{say_and_reset(half)}, true);
    check_all_fail(resetting.url(), 69, "");
    FakeServer hanging(std::vector<Step>{say(half), silence()});
    check_fails(hanging.url(), {"run", "-t", "600ms", "-k", "a", "--", "true"}, 69,
                "answer in time", milliseconds(4500));
  }
}

TEST_CASE("bad server: keys that hold somebody else's data are 65 and stay as they are") {
  const Place place(Engine::redis);
  auto& server = place.server();
  server.command({"SET", "dlock:{text}", "x"});
  server.command({"HSET", "dlock:{hash}", "field", "value"});
  server.command({"RPUSH", "dlock:{list}", "x"});
  for (const std::string& key : {std::string("text"), std::string("hash"), std::string("list")}) {
    CAPTURE(key);
    for (auto words : all_commands({})) {
      if (words == std::vector<std::string>{"inspect"}) continue;
      for (auto& word : words) {
        if (word == "a") word = key;
      }
      const auto result = place.dlock(words);
      CAPTURE(words[0]);
      check_message(result, 65, key);
    }
  }
  CHECK(server.command({"GET", "dlock:{text}"}).text == "x");
  CHECK(server.command({"HGETALL", "dlock:{hash}"}).items.size() == 2);
  CHECK(server.command({"LLEN", "dlock:{list}"}).number == 1);
}

TEST_CASE("bad server: one whose SCAN takes more than 5 s is read to its end") {
  FakeServer server([](const std::vector<std::string>& words) {
    if (words.front() != "SCAN") return say("+OK\r\n");
    if (!scans_for_own_keys(words)) return say("*2\r\n+0\r\n*0\r\n");
    std::this_thread::sleep_for(milliseconds(20));
    return say(page_of_long_scan(words[1]));
  });
  const ProcessOptions options{.env = {{"DLOCK_SERVER", server.url()}}};
  std::vector<Process> all;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"inspect"}, {"inspect", "--all-kinds"}, {"release", "--force", "x*"}}) {
    all.push_back(start_dlock(words, options));
  }
  for (Process& each : all) {
    const Result result = each.wait(milliseconds(60'000));
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.duration > silence_of_a_dead_server);
  }
}

TEST_CASE("bad server: the reason of one that has too many clients is told, without a login too") {
  const RedisServer server({.config = {"maxclients 1"}});
  std::optional<Process> other;
  // The server counts the connection of the start-up check until it has seen its end, and sends
  // this one away.
  REQUIRE(eventually([&] {
    if (!other || !other->running()) {
      other.emplace(
          std::vector<std::string>{"redis-cli", "-s", server.socket_path(), "SUBSCRIBE", "c"});
    }
    return holds(other->out(), "subscribe");
  }));
  check_fails(server.url(), {"run", "-n", "-k", "a", "--", "true"}, 69, "too many clients",
              milliseconds(5000));
}

}  // namespace
}  // namespace dlock::test
