// Locks of other libraries, as users of dlock see them.

#include <doctest/doctest.h>

#include <csignal>
#include <map>
#include <regex>
#include <sstream>

#include "cli/place.hpp"
#include "support/cluster.hpp"
#include "support/fake_server.hpp"
#include "support/files.hpp"
#include "support/resp.hpp"
#include "support/sentinels.hpp"

namespace dlock::test {
namespace {

/// The value of a redis-py lock; it contains the time of its acquisition.
constexpr const char* of_redis_py = "b282c080e78711f08000000000000001";

std::vector<std::string> run_compat(const std::string& layout, std::vector<std::string> more) {
  std::vector<std::string> arguments{"run", "--compat", layout, "-k", "job"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// `answer` to the request that acquires the lock, and +OK to all others.
std::string answer_to_take(const std::vector<std::string>& words, const std::string& answer) {
  return words[0] == "SET" || words[0] == "EVALSHA" ? answer : "+OK\r\n";
}

Result run_in_layout(const FakeServer& server, const char* layout) {
  return dlock(run_compat(layout, {"-n", "-t", "1m", "--", "echo", "ran"}),
               {.env = {{"DLOCK_SERVER", server.url()}}});
}

}  // namespace

TEST_CASE(
    "compat: a command runs while the library's lock is held, and has no fence but Redisson's") {
  const Place place(Engine::redis);
  for (const auto& [layout, fence] :
       {std::pair("redis-py", "none"), std::pair("redisson", "none"),
        std::pair("redisson-fenced", "1"), std::pair("symfony", "none")}) {
    const auto ran =
        place.dlock(run_compat(layout, {"--", "sh", "-c", "echo ${DLOCK_KEY} ${DLOCK_FENCE-none}"}),
                    {.env = {{"DLOCK_FENCE", "17"}}});
    check_ran(ran, std::string("job ") + fence + "\n");
    CHECK(ran.err == "");
  }
  check_says(
      place.dlock(run_compat("redis-py", {"--", dlock_path(), "guard", "--state", "seal", "true"})),
      64, "missing fence");
}

TEST_CASE("compat: what is no answer to a take grants nothing, nor does the request itself") {
  // A socket that is connected to itself receives its own request.
  const std::string echo;
  for (const char* layout : {"redis-py", "redisson", "symfony"}) {
    for (const std::string& answer :
         {echo, std::string("+QUEUED\r\n"), std::string("*0\r\n"), std::string("*1\r\n:2\r\n"),
          std::string("*2\r\n:0\r\n:5000\r\n")}) {
      CAPTURE(layout);
      CAPTURE(answer);
      FakeServer server([&](const std::vector<std::string>& words) {
        return say(answer == echo ? request(words) : answer_to_take(words, answer));
      });
      check_message(run_in_layout(server, layout), 69, "unexpected answer");
    }
  }
}

TEST_CASE("compat: a refusal names the library, and the wait says that there is no queue") {
  const Place place(Engine::redis);
  place.server().command({"SET", "job", of_redis_py});
  const auto refused = place.dlock(run_compat("redsync", {"-n", "--", "true"}));
  CHECK(refused.exit_code == 75);
  CHECK(refused.err ==
        "dlock: job is held by a client of redis-py since 2026-01-02T03:04:05.000Z, no expiry\n");
  const ProcessOptions options{.cwd = place.dir().path()};
  const std::string hook = "echo \"$DLOCK_HOLDER\" >holder";
  Result waited;
  // On a busy machine, the wait may end before dlock learns the holder, but not in every try.
  in_one_of(3, [&] {
    waited =
        place.dlock(run_compat("redsync", {"-w", "2s", "--hook", hook, "--", "true"}), options);
    return count_lines(waited.err) == 2;
  });
  CHECK(waited.exit_code == 75);
  CHECK(count_lines(waited.err) == 2);
  CHECK(read_file(place.dir() / "holder") ==
        "a client of redis-py since 2026-01-02T03:04:05.000Z\n");
  CHECK(holds(waited.err, "no expiry; there is no queue, any waiter may be next"));
  CHECK(place.server().command({"GET", "job"}).text == of_redis_py);
}

TEST_CASE("compat: a value of one megabyte or of any bytes is another's lock, and is not shown") {
  const Place place(Engine::redis);
  const std::string values[] = {std::string(1'000'000, 'x'), std::string("\x1b[2J\0\xff", 6), ""};
  for (const std::string& value : values) {
    place.server().command({"SET", "job", value});
    for (const auto& arguments :
         {run_compat("rslock", {"-n", "--", "true"}),
          std::vector<std::string>{"inspect", "--compat", "rslock", "-k", "job", "--json"}}) {
      const auto result = place.dlock(arguments);
      CHECK(result.out.size() + result.err.size() < 1000);
      CHECK(!holds(result.out + result.err, "\x1b"));
      CHECK(!holds(result.out + result.err, "xxx"));
    }
    CHECK(place.dlock(run_compat("rslock", {"-n", "--", "true"})).exit_code == 75);
  }
}

TEST_CASE("compat: a token renews and releases, by another process, in each layout") {
  const Place place(Engine::redis);
  for (const char* layout : {"redis-py", "shedlock", "spring:reg", "redisson-fenced", "symfony"}) {
    CAPTURE(layout);
    const auto acquired =
        place.dlock({"acquire", "--compat", layout, "-k", "job", "-t", "20s", "--json"});
    REQUIRE(acquired.exit_code == 0);
    const auto json = nlohmann::json::parse(acquired.out);
    const std::string token = json["token"];
    CHECK(json["locks"][0]["fence"].is_null() == (std::string(layout) != "redisson-fenced"));
    const auto asked = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), {"--compat", layout, "-k", "job", "--token", token});
      return place.dlock(arguments).exit_code;
    };
    CHECK(asked({"renew", "-t", "30s"}) == 0);
    CHECK(asked({"renew"}) == 64);
    CHECK(place.dlock(run_compat(layout, {"-n", "--", "true"})).exit_code == 75);
    CHECK(asked({"release"}) == 0);
    CHECK(asked({"release"}) == 79);
    CHECK(asked({"renew", "-t", "30s"}) == 79);
  }
}

TEST_CASE("compat: acquire --attach holds a library's lock for as long as the script lives") {
  const Place place(Engine::redis);
  Process script = patient_start(
      [&] {
        return place.start_shell(
            "$D acquire -q --compat redis-py -k job -t 15s --attach $$ || exit; "
            "$D run --compat redis-py -n -k job true; echo $?; "
            "until [ -e go ]; do sleep 0.02; done; "
            "$D run --compat redis-py -n -k job true; echo $?");
      },
      [](const Process& process) { return process.out() == "75\n"; },
      "the script did not come to hold the lock");
  CHECK(grows_twice([&] {
    const auto left = place.server().command({"PTTL", "job"}).number;
    return left < 0 ? std::nullopt : std::optional(left);
  }));
  write_file(place.dir() / "go", "");
  CHECK(script.wait().out == "75\n75\n");
  CHECK(eventually([&] { return place.server().command({"EXISTS", "job"}).number == 0; }));
}

TEST_CASE("compat: a run whose lock was taken from it stops its command and exits 79") {
  const Place place(Engine::redis);
  Process run = patient_start(
      [&] {
        return place.start(
            run_compat("redisson", {"-t", "9s", "--", "sh", "-c", "echo in; sleep 60"}));
      },
      says_in, "the command did not start");
  check_says(place.dlock({"release", "--force", "--compat", "redisson", "-k", "job"}), 0,
             "evicted a client of Redisson or dlock from job");
  CHECK(run.wait().exit_code == 79);
  check_says(place.dlock({"release", "--force", "--compat", "redisson", "-k", "job"}), 0,
             "nobody held job");
}

TEST_CASE("compat: inspect --all-kinds lists the locks of every library, and nothing else") {
  const Place place(Engine::redis);
  const RedisServer& server = place.server();
  place.acquired("own");
  server.command({"SET", "python", of_redis_py});
  server.command({"SET", "go", "Yc3Rq1p8m0Vn5t7x9z2b4A==", "PX", "60000"});
  server.command({"SET", "job-lock:default:k", "ADDED:2026-01-02T03:04:05.678Z@web1:uuid"});
  server.command({"HSET", "java", "0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21:33", "1"});
  server.command({"HSET", "rw", "mode", "read", "0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21:33", "1"});
  server.command({"ZADD", "php", "1", "__write__"});
  server.command({"SET", "counter", "17"});
  server.command({"HSET", "user", "name", "alice"});
  server.command({"ZADD", "scores", "1", "alice"});
  const auto text = place.dlock({"inspect", "--all-kinds"});
  CHECK(text.exit_code == 0);
  CHECK(count_lines(text.out) == 8);
  CHECK(holds(text.out, "no expiry"));
  CHECK(holds(text.out, "web1"));
  CHECK(!holds(text.out, "Yc3R"));
  CHECK(!holds(text.out, of_redis_py));
  const auto json = place.dlock({"inspect", "--all-kinds", "--json", "rw"});
  const auto row = nlohmann::json::parse(json.out);
  CHECK(row["key"] == "rw");
  CHECK(row["library"] == "Redisson");
  CHECK(row["kind"] == "read lock");
  CHECK(place.dlock({"inspect", "--all-kinds", "-q", "nothing*"}).exit_code == 1);
}

TEST_CASE("compat: in a Cluster each layout works, and names whose keys would part are refused") {
  const Cluster cluster;
  const auto run = [&](const std::string& layout, const std::string& key) {
    return dlock({"run", "--compat", layout, "-k", key, "--server", cluster.url(), "--", "sh", "-c",
                  dlock_path() + " run -n --compat " + layout + " -k '" + key + "' --server " +
                      cluster.url() + " true; echo $?"});
  };
  for (const char* layout :
       {"redis-py", "shedlock", "spring:reg", "redisson", "redisson-fenced", "symfony"}) {
    for (int i = 0; i < 3; ++i) {
      CAPTURE(std::string(layout));
      const Result inside = run(layout, Cluster::key_of(static_cast<std::size_t>(i)));
      CAPTURE(inside.err);
      CHECK(inside.out == "75\n");
    }
  }
  CHECK(run("redisson", "a{b}c").out == "75\n");
  CHECK(run("python-redis-lock", "{b}c").out == "75\n");
  for (const auto& [layout, key] :
       {std::pair("redisson", "a{b"), std::pair("redisson", "a}b"), std::pair("redisson", "a{}b"),
        std::pair("python-redis-lock", "b")}) {
    check_says(run(layout, key), 64, "in a Cluster");
  }
  const auto listed = dlock({"inspect", "--all-kinds", "--server", cluster.url()});
  CHECK(listed.exit_code == 0);
}

TEST_CASE("compat: behind Sentinel a run keeps the library's lock, and waits for it") {
  Sentinels fleet;
  const auto start = [&](const std::string& script) {
    return start_dlock(run_compat("redisson", {"--server", fleet.url(), "--", "sh", "-c", script}));
  };
  Process holder = start("echo in; sleep 60");
  CHECK(eventually([&] { return holder.out() == "in\n"; }));
  CHECK(fleet.master().command({"HLEN", "job"}).number == 1);
  Process waiter = start("echo waited");
  CHECK(eventually([&] { return holds(waiter.err(), "waiting"); }));
  holder.signal(SIGTERM);
  check_ran(waiter.wait(), "waited\n");
  CHECK(eventually([&] { return fleet.master().command({"EXISTS", "job"}).number == 0; }));
}

TEST_CASE("compat: over three servers a majority decides, also while one of them is dead") {
  RedisServer servers[3];
  std::vector<std::string> at;
  for (const RedisServer& each : servers) at.insert(at.end(), {"--server", each.url()});
  const auto ask = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, at.begin(), at.end());
    return once_served([&] { return dlock(arguments); });
  };
  const auto keys = [&](std::size_t i) { return servers[i].command({"DBSIZE"}).number; };
  CHECK(ask(run_compat("redsync", {"--", "true"})).exit_code == 0);
  CHECK(keys(0) + keys(1) + keys(2) == 0);
  servers[2].kill_hard();
  CHECK(ask(run_compat("redsync", {"--", "true"})).exit_code == 0);
  // One foreign vote blocks nobody while two servers are free; two foreign votes do.
  servers[2].restart();
  servers[0].command({"SET", "job", of_redis_py, "PX", "60000"});
  CHECK(ask(run_compat("redsync", {"--", "true"})).exit_code == 0);
  servers[1].command({"SET", "job", of_redis_py, "PX", "60000"});
  check_says(ask(run_compat("redsync", {"-n", "--", "true"})), 75, "redis-py");
  CHECK(keys(2) == 0);
  servers[1].command({"DEL", "job"});
  servers[0].command({"DEL", "job"});
  const auto token = ask({"acquire", "--compat", "redsync", "-k", "job", "-t", "20s"}).out;
  CHECK(
      holds(ask({"inspect", "--compat", "redsync", "-k", "job"}).out, "held by a client of dlock"));
  const auto release = [&] {
    return ask({"release", "--compat", "redsync", "-k", "job", "--token",
                token.substr(0, token.size() - 1)});
  };
  CHECK(release().exit_code == 0);
  CHECK(release().exit_code == 79);
  // A server that does not answer may have the second vote.
  servers[0].command({"SET", "job", of_redis_py, "PX", "60000"});
  const auto is_held = [&] { return ask({"inspect", "-q", "--compat", "redsync", "-k", "job"}); };
  CHECK(is_held().exit_code == 1);
  servers[1].kill_hard();
  CHECK(is_held().exit_code == 0);
  servers[2].kill_hard();
  CHECK(ask(run_compat("redsync", {"-n", "--", "true"})).exit_code == 69);
}

}  // namespace dlock::test
