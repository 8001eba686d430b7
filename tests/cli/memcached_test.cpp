#include <doctest/doctest.h>

#include <string>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/memcached_server.hpp"

// Locks in a memcached, as users of dlock see them, and what it forgets.

namespace dlock::test {
namespace {

constexpr const char* forgets = "memcached forgets locks when it is full or restarts";

MemcachedServer& empty_memcached() {
  static MemcachedServer server;
  server.clear();
  return server;
}

/// Writes more than a megabyte of values of each size that a record may have.
void fill(MemcachedServer& server) {
  constexpr int bytes = 1'500'000;
  for (int size = 100; size < 3000; size += size / 5) {
    const std::string length = std::to_string(size);
    const std::string value(static_cast<std::size_t>(size), 'x');
    std::string all;
    for (int i = 0; i < bytes / size; ++i) {
      all += "set f" + length + "-" + std::to_string(i) + " 0 0 " + length + " noreply\r\n" +
             value + "\r\n";
    }
    server.ask(all + "mn", "MN");
  }
}

TEST_CASE("memcached: locks and guards live there, and latches are refused") {
  if (is_missing<MemcachedServer>()) return;
  const std::string url = empty_memcached().url();
  const auto code = [&](const std::vector<std::string>& words) {
    return dlock_at(url, words).exit_code;
  };
  const Result acquired = dlock_at(url, {"acquire", "-k", "a", "-t", "60s"});
  REQUIRE(acquired.exit_code == 0);
  const std::string token = acquired.out.substr(0, acquired.out.size() - 1);
  CHECK(code({"run", "-n", "-k", "a", "--", "true"}) == 75);
  CHECK(code({"renew", "-k", "a", "--token", token, "-t", "90s"}) == 0);
  const auto left = state_at(url, "a")["holders"][0]["lease_left_ms"].get<int>();
  CHECK(left > 60'000);
  CHECK(left <= 92'000);
  CHECK(code({"release", "-k", "a", "--token", token}) == 0);
  CHECK(code({"renew", "-k", "a", "--token", token}) == 79);
  CHECK(code({"guard", "--state-key", "r", "--fence", "7", "true"}) == 0);
  CHECK(code({"guard", "--state-key", "r", "--fence", "6", "true"}) == 79);
  check_message(dlock_at(url, {"latch", "open", "-k", "l", "--count", "2"}), 64,
                "memcached keeps no latch");
}

TEST_CASE("memcached: dlock warns once before it takes a lock, and not with -q") {
  if (is_missing<MemcachedServer>()) return;
  const std::string url = empty_memcached().url();
  const Result ran = run_at(url);
  CHECK(ran.exit_code == 0);
  CHECK(holds(ran.err, forgets));
  CHECK(is_one_message(ran.err));
  CHECK(dlock_at(url, {"run", "-q", "-k", "a", "--", "true"}).err.empty());
  CHECK(dlock_at(url, {"inspect", "-k", "a"}).err.empty());
}

TEST_CASE("memcached: a waiter gets the lock when the holder ends") {
  if (is_missing<MemcachedServer>()) return;
  const std::string url = empty_memcached().url();
  CommandInside holder(url);
  Process waiter = queued_at(url, 1, {"--", "echo", "in"});
  holder.end();
  CHECK(waiter.wait().out == "in\n");
  CHECK(holder.process.wait().exit_code == 0);
}

TEST_CASE("memcached: inspect shows the keys that it is named, and lists none") {
  if (is_missing<MemcachedServer>()) return;
  const std::string url = empty_memcached().url();
  const CommandInside holder(url);
  CHECK(is_held(url));
  CHECK(holds(dlock_at(url, {"inspect", "-k", "a", "other"}).out, "\nother  free"));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"inspect"}, {"inspect", "a*"}, {"release", "--force", "a*"}}) {
    check_message(dlock_at(url, words), 64, "memcached cannot list its keys: name them");
  }
}

TEST_CASE("memcached: a holder whose lock is flushed or lost in a restart stops its command, 79") {
  if (is_missing<MemcachedServer>()) return;
  MemcachedServer server;
  const auto is_stopped_after = [&](const std::function<void()>& loss) {
    CommandInside holder(server.url(), {"-q", "-t", "6s"});
    loss();
    const Result ended = holder.process.wait();
    CHECK(ended.exit_code == 79);
    CHECK(is_one_message(ended.err));
    CHECK(server.keys().empty());
  };
  is_stopped_after([&] { server.clear(); });
  is_stopped_after([&] {
    server.kill_hard();
    server.start();
  });
  // Another client has taken the forgotten lock, and keeps it.
  CommandInside holder(server.url(), {"-q", "-t", "6s"});
  server.clear();
  CommandInside next(server.url(), {"-q", "-t", "6s"});
  CHECK(holder.process.wait().exit_code == 79);
  next.end();
  CHECK(next.process.wait().exit_code == 0);
}

TEST_CASE("memcached: an old record whose cas comes again after a restart is not overwritten") {
  if (is_missing<MemcachedServer>()) return;
  MemcachedServer server;
  const auto backend = [&] { return MemcachedBackend(server.endpoint(), "memcached"); };
  const CallOptions soon{later(BootClock::now(), std::chrono::seconds(20)), -1};
  MemcachedBackend one = backend(), other = backend();
  const Update first{"first\n", microseconds::max()}, second{"second\n", microseconds::max()};
  Snapshot seen = one.read("n", nullptr, soon);
  seen.version = std::get<Version>(one.write("n", seen, first, soon));
  server.kill_hard();
  server.start();
  const Snapshot empty = other.read("n", nullptr, soon);
  REQUIRE(std::holds_alternative<Version>(other.write("n", empty, second, soon)));
  const auto overtaken = one.write("n", seen, first, soon);
  REQUIRE(std::holds_alternative<Snapshot>(overtaken));
  CHECK(std::get<Snapshot>(overtaken).text == "second\n");
}

TEST_CASE("memcached: one that is full and evicts nothing takes no lock, 69") {
  if (is_missing<MemcachedServer>()) return;
  MemcachedServer server({"-m", "1", "-I", "512k", "-M"});
  fill(server);
  const Result refused = dlock_at(server.url(), {"run", "-q", "-n", "-k", "a", "--", "true"});
  check_message(refused, 69, "it is full: give it more memory (-m)");
  CHECK(holds(finding(doctor_at(server.url()), "memory"), "it evicts nothing"));
}

TEST_CASE("memcached: a lock that is evicted for other values is lost, and doctor warns, 79") {
  if (is_missing<MemcachedServer>()) return;
  MemcachedServer server({"-m", "1", "-I", "512k"});
  CommandInside holder(server.url(), {"-q", "-t", "6s"});
  CHECK(holds(finding(doctor_at(server.url()), "memory"), "nothing evicted"));
  fill(server);
  const auto ended = holder.process.wait();
  CHECK(ended.exit_code == 79);
  CHECK(holds(finding(doctor_at(server.url()), "memory"), "warning"));
}

TEST_CASE("memcached: a value that is not dlock's is left as it is, 65") {
  if (is_missing<MemcachedServer>()) return;
  MemcachedServer& server = empty_memcached();
  REQUIRE(run_at(server.url()).exit_code == 0);
  REQUIRE(server.keys().size() == 1);
  const std::string key = server.keys().front();
  server.ask("set " + key + " 0 0 5\r\nother", "STORED");
  check_message(dlock_at(server.url(), {"run", "-q", "-k", "a", "--", "true"}), 65,
                "something else than a record of dlock");
  CHECK(holds(server.ask("get " + key, "END"), "other"));
}

TEST_CASE("memcached: several hosts, logins and paths are refused, 64") {
  const auto refused = [](const std::string& url, const std::string& why) {
    check_message(run_at(url), 64, why);
  };
  refused("memcached://a,b", "memcached:// takes one host");
  refused("memcached://user:pw@a", "memcached:// takes no user and no password");
  refused("memcached://a/b", "nothing may follow memcached://HOST[:PORT]");
  check_message(dlock({"doctor", "--server", "memcached://a", "--acl"}), 64,
                "memcached has no rights");
}

TEST_CASE("memcached: another server, and one without cas, are named as such with 69") {
  if (is_missing<MemcachedServer>()) return;
  const RedisServer redis({.tcp = true});
  const std::string url = "memcached://127.0.0.1:" + std::to_string(redis.port());
  check_message(dlock_at(url, {"run", "-q", "-n", "-k", "a", "--", "true"}), 69,
                "not a memcached 1.6 or later: it answers -ERR unknown command");
  const MemcachedServer without({"-C"});
  check_message(dlock_at(without.url(), {"run", "-q", "-n", "-k", "a", "--", "true"}), 69,
                "it runs with -C");
}

TEST_CASE("memcached: doctor says efficiency only") {
  if (is_missing<MemcachedServer>()) return;
  const Result doctor = doctor_at(empty_memcached().url());
  CHECK(doctor.exit_code == 0);
  CHECK(holds(finding(doctor, "label"), "ok efficiency only"));
  CHECK(holds(finding(doctor, "engine"), "ok memcached 1."));
  CHECK(holds(finding(doctor, "clock"), "ok within"));
  CHECK(holds(finding(doctor, "lock"), "ok acquired, handed over"));
}

}  // namespace
}  // namespace dlock::test
