#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "support/fake_server.hpp"
#include "support/fleet.hpp"

namespace dlock::test {
namespace {

/// dlock with these servers alone.
Result with(const std::vector<std::string>& urls, const std::vector<std::string>& arguments) {
  ProcessOptions options;
  options.env = {{"DLOCK_SERVER", side_by_side(urls)}};
  return dlock(arguments, options);
}

Result run_with(const std::vector<std::string>& urls) {
  return with(urls, {"run", "-q", "-n", "-k", "k", "--", "sh", "-c", "echo $DLOCK_FENCE"});
}

/// Two good ones and this: it works, and says that no more than those may fail, and why.
void is_put_up_with(const Fleet& good, const std::string& bad, const std::string& said) {
  const auto urls = good.urls();
  ProcessOptions options;
  options.env = {{"DLOCK_SERVER", side_by_side({urls[0], bad, urls[1]})}};
  Process job = start_dlock(
      {"run", "-t", "6", "-k", "k", "--", "sh", "-c", "echo $DLOCK_FENCE; exec sleep 60"}, options);
  const bool told = eventually([&] { return times(job.err(), said) > 0 || !job.running(); });
  CAPTURE(job.err());
  CHECK(told);
  CHECK(times(job.err(), "k is held on 2 of 3 servers, and 2 are needed: ") > 0);
  CHECK(times(job.err(), bad) > 0);
  REQUIRE(eventually([&] { return !job.out().empty() || !job.running(); }));
  job.signal(SIGTERM);
  const Result result = job.wait();
  CHECK(result.signal == SIGTERM);
  const auto wall_us = wall_now().time_since_epoch().count();
  CHECK(std::abs(std::stoll(result.out) - wall_us) < 60'000'000);
}

/// Two of them and one good one: no lock, and the message names both.
void is_no_majority(const Fleet& good, const std::vector<std::string>& bad, int exit_code) {
  const Result result = run_with({bad[0], good.urls()[0], bad[1]});
  CAPTURE(result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.out == "");
  for (const std::string& url : bad) CHECK(times(result.err, url) > 0);
}

std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

/// Grants everything to everybody, under the largest fence there is.
Step lie(const std::vector<std::string>& words) {
  const std::string process(40, 'f');
  if (words[0] == "INFO") return say(bulk("# Server\r\nrun_id:" + process + "\r\n"));
  if (words[0] == "CONFIG") return say("*2\r\n" + bulk("appendfsync") + bulk("always"));
  if (words[0] == "ROLE") return say("*3\r\n" + bulk("master") + ":0\r\n*0\r\n");
  if (words[0] != "EVALSHA" && words[0] != "EVAL") return say("+OK\r\n");
  const std::string tail = " 0 0 " + process + "/a";
  const auto keys = static_cast<std::size_t>(std::stoi(words[2]));
  const std::string& operation = words.at(3 + keys);
  const std::string fence = "9007199254740000";
  if (operation == "acquire") {
    return say(bulk("granted " + fence + tail));
  }
  if (operation == "renew" || operation == "rejoin") {
    return say(bulk("renewed 30000 " + fence + " 1" + tail));
  }
  return say(bulk("released" + tail));
}

RedisOptions with_password() {
  RedisOptions options;
  options.password = "other";
  return options;
}

}  // namespace

TEST_CASE("majority: servers that are no three are refused, 64") {
  const FleetScene scene({.servers = 3});
  const auto urls = scene.fleet.urls();
  const auto refused = [&](const std::vector<std::string>& servers) {
    const Result result = run_with(servers);
    CHECK(result.exit_code == 64);
    CHECK(result.out == "");
    return result.err;
  };
  CHECK(times(refused({urls[0], urls[1]}), "two servers") > 0);
  CHECK(times(refused({urls[0], urls[1], urls[0]}), "twice") > 0);
  CHECK(times(refused({urls[0], urls[1], "local:"}), "local:") > 0);
}

TEST_CASE("majority: one server under two names never has two votes") {
  const Fleet fleet({.servers = 2});
  const std::string one = fleet.urls()[0];
  const std::string same = fleet.server(0).url();  // behind the proxy
  const std::string said = one + " and " + same + " are one and the same server";
  const Result none = run_with({one, "unix:///nonexistent/redis.sock", same});
  CHECK((none.exit_code == 64 || none.exit_code == 69));
  CHECK(none.out == "");
  CHECK(times(none.err, said) == 1);
  // Where there is a majority without it, that may be noticed only once the job runs, and then does
  // it no harm.
  ProcessOptions options;
  options.env = {{"DLOCK_SERVER", side_by_side({one, fleet.urls()[1], same})}};
  Process job = start_dlock({"run", "-t", "3", "-k", "k", "--", "sleep", "60"}, options);
  CHECK(eventually([&] { return times(job.err(), said) > 0; }));
  if (job.running()) job.signal(SIGTERM);
  const Result result = job.wait();
  CHECK((result.exit_code == 64 || result.signal == SIGTERM));

  const TempDir dir;
  const std::string link = dir / "link.sock";
  REQUIRE(symlink(fleet.server(0).socket_path().c_str(), link.c_str()) == 0);
  const Result linked = run_with({same, fleet.urls()[1], "unix://" + link});
  CHECK(linked.exit_code == 64);
  CHECK(linked.out == "");
}

TEST_CASE("majority: one server that cannot take part is put up with and named, two are not") {
  const Fleet good({.servers = 3});
  const RedisServer locked(with_password());
  const RedisServer locked_too(with_password());
  is_put_up_with(good, locked.url(), "NOAUTH");
  is_no_majority(good, {locked.url(), locked_too.url()}, 77);

  RedisOptions tcp;
  tcp.tcp = true;
  const RedisServer master(tcp);
  RedisOptions options;
  options.config = {"replicaof 127.0.0.1 " + std::to_string(master.port()),
                    "repl-diskless-sync-delay 0"};
  const RedisServer replica(options);
  is_put_up_with(good, replica.url(), "replica");

  const Fleet odd({.servers = 2});
  for (std::size_t i = 0; i < 2; ++i) odd.server(i).command({"SET", "dlock:{k}", "text"});
  is_put_up_with(good, odd.urls()[0], "the key holds data that is not a lock");
  is_no_majority(good, odd.urls(), 65);

  const FakeServer rubbish({say("?what\r\n")});
  const FakeServer other_rubbish({say("*1\r\n:1\r\n")});
  is_put_up_with(good, rubbish.url(), rubbish.url());
  is_no_majority(good, {rubbish.url(), other_rubbish.url()}, 69);

  const std::string nobody = "unix:///nonexistent/redis.sock";
  is_put_up_with(good, nobody, "No such file");
}

TEST_CASE("majority: a server that grants what it has not got has one vote and no more") {
  const Fleet good({.servers = 2});
  const FakeServer liar(lie);
  const auto urls = good.urls();
  // Its fence, which is absurd, is not taken over by the others.
  const Result alone = run_with({urls[0], liar.url(), urls[1]});
  CAPTURE(alone.err);
  REQUIRE(alone.exit_code == 0);
  CHECK(alone.out.size() < 18);
  CHECK(std::stoll(alone.out) < 5'000'000'000'000'000);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(std::stoll(good.server(i).command({"GET", "dlock:{k}:fence"}).text) <
          5'000'000'000'000'000);
  }
  const Result held = with({urls[0], liar.url(), urls[1]}, {"acquire", "-t", "30", "-k", "k"});
  REQUIRE(held.exit_code == 0);
  const Result second = run_with({urls[0], liar.url(), urls[1]});
  CHECK(second.exit_code == 75);
  CHECK(second.out == "");
}

}  // namespace dlock::test
