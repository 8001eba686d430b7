#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/place.hpp"
#include "support/fault_proxy.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

Words latch(const std::string& verb, Words more) {
  more.insert(more.begin(), {"latch", verb, "-k", "build"});
  return more;
}

/// A `latch wait` that is waiting when this returns.
Process waiter(const Place& place, const Words& more = {}) {
  Process process = place.start(latch("wait", more));
  REQUIRE(eventually([&] { return holds(process.err(), "waiting: build: "); }));
  return process;
}

TEST_CASE("latch: four arrive, and the one that waits goes on") {
  on_each_engine([](const Place& place) {
    const auto opened = place.dlock(latch("open", {"--count", "4"}));
    CHECK(opened.exit_code == 0);
    CHECK(opened.out + opened.err == "");
    Process waits = waiter(place);
    CHECK(holds(waits.err(), "dlock: waiting: build: 0 of 4 have arrived\n"));
    for (const char* job : {"linux", "mac", "linux", "docs"}) {
      const auto arrived = place.dlock(latch("arrive", {"--by", job}));
      CHECK(arrived.exit_code == 0);
      CHECK(arrived.out + arrived.err == "");
    }
    CHECK(waits.running());
    CHECK(holds(place.dlock(latch("arrive", {"-v"})).err, "build: 4 of 4 have arrived"));
    const auto end = waits.wait(milliseconds(20'000));
    check_says(end, 0, "dlock: build is open after ");
    CHECK(end.out == "");
    const auto late = place.dlock(latch("wait", {}));
    CHECK(late.exit_code == 0);
    CHECK(late.out + late.err == "");
  });
}

TEST_CASE("latch: a majority of servers keeps none, 64, which names what does") {
  const Place place(Engine::local);
  for (const char* verb : {"open", "arrive", "wait"}) {
    std::vector<std::string> words = latch(verb, {});
    if (words[1] == "open") words.push_back("--count=2");
    for (const char* port : {"1", "2", "3"}) {
      words.push_back(std::string("--server=redis://127.0.0.1:") + port);
    }
    const auto refused = place.dlock(words);
    CHECK(refused.exit_code == 64);
    CHECK(refused.err ==
          "dlock: build: a majority of servers keeps no latch: name one of them, or an engine "
          "that replicates: Sentinel, a Cluster, a database, etcd, ZooKeeper or Kubernetes\n");
  }
}

TEST_CASE("latch: more wait than the one that opens it may have files open") {
  const Place place(Engine::local);
  const ProcessOptions options{
      .env = {{"LOCKS", place.url().substr(std::string("local:").size())}}};
  const auto result = place.shell(R"sh(
      "$D" latch open -k build --count 1
      for i in $(seq 50); do { "$D" latch wait -q -k build && echo on; } & done
      until [ "$(ls -A "$LOCKS" | grep -c '^[.]wait')" = 50 ]; do sleep 0.01; done
      (ulimit -n 30; "$D" latch arrive -k build)
      echo "code $?"; wait)sh",
                                  options);
  CHECK(count_lines(result.out) == 51);
  CHECK(holds(result.out, "code 0\n"));
}

TEST_CASE("latch: JSON is one object with key, count, arrived and open") {
  on_each_engine([](const Place& place) {
    const auto shows = [&](const Words& words, const std::string& expected) {
      const auto result = place.dlock(words);
      CHECK(result.out == "{\"key\":\"build\"," + expected + "}\n");
      return result.exit_code;
    };
    CHECK(shows(latch("open", {"--count=2", "--json"}),
                "\"count\":2,\"arrived\":0,\"open\":false") == 0);
    CHECK(shows(latch("arrive", {"--json"}), "\"count\":2,\"arrived\":1,\"open\":false") == 0);
    CHECK(shows(latch("wait", {"--json", "-n"}), "\"count\":2,\"arrived\":1,\"open\":false") == 75);
    CHECK(shows(latch("arrive", {"--json"}), "\"count\":2,\"arrived\":2,\"open\":true") == 0);
    CHECK(shows(latch("arrive", {"--json"}), "\"count\":2,\"arrived\":2,\"open\":true") == 0);
    CHECK(shows(latch("wait", {"--json"}), "\"count\":2,\"arrived\":2,\"open\":true") == 0);
  });
}

TEST_CASE("latch: inspect shows it in words, in its list, as JSON and as it changes") {
  on_each_engine([](const Place& place) {
    place.dlock(latch("open", {"--count=2", "--ttl=2h"}));
    auto blocks = place.start({"inspect", "build", "--watch"});
    auto lines = place.start({"inspect", "--watch", "--json"});
    const std::string shut = "build\n  latch shut, 0 of 2 have arrived, ends in 1h59m\n";
    REQUIRE(eventually([&] { return blocks.out() == shut; }));
    REQUIRE(eventually([&] { return count_lines(lines.out()) == 1; }));
    CHECK(place.dlock({"inspect", "-q", "build"}).exit_code == 1);
    CHECK(place.dlock({"inspect", "-q"}).exit_code == 1);
    const auto token = place.acquired("lock");
    place.dlock(latch("arrive", {}));
    REQUIRE(eventually([&] { return holds(blocks.out(), "latch shut, 1 of 2 have arrived"); }));
    const auto list = place.dlock({"inspect"}).out;
    CHECK(list.starts_with("KEY    HOLDER"));
    CHECK(holds(list, "WAITING  LATCH\nbuild  -"));
    CHECK(holds(list, "0        1/2\nlock   "));
    CHECK(count_lines(place.dlock({"inspect", "bu*"}).out) == 2);
    place.dlock(latch("arrive", {}));
    REQUIRE(eventually([&] { return holds(blocks.out(), "latch open, 2 of 2 have arrived"); }));
    const auto object = json::parse(place.dlock({"inspect", "build", "--json"}).out)["latch"];
    CHECK(object["count"] == 2);
    CHECK(object["arrived"] == 2);
    CHECK(object["open"] == true);
    CHECK(object["left_ms"] > 3'600'000);
    CHECK(object["left_ms"] <= 7'200'000);
    CHECK(!holds(place.dlock({"inspect", "lock", "--json"}).out, "latch"));
    REQUIRE(eventually([&] { return holds(lines.out(), "\"arrived\":2,\"open\":true"); }));
    CHECK(place.dlock({"inspect", "-q", "build"}).exit_code == 1);
  });
}

TEST_CASE("latch: who may not wait so long is told how many there are") {
  on_each_engine([](const Place& place) {
    place.dlock(latch("open", {"--count", "4"}));
    place.dlock(latch("arrive", {}));
    place.dlock(latch("arrive", {}));
    for (const Words& words : {Words{"-n"}, Words{"-w", "0"}}) {
      const auto result = place.dlock(latch("wait", words));
      CHECK(result.exit_code == 75);
      CHECK(result.err == "dlock: build: 2 of 4 have arrived\n");
    }
    Result waited;
    // On a busy machine, the wait may end before its first message, but not in every try.
    in_one_of(3, [&] {
      waited = place.dlock(latch("wait", {"-w", "2"}));
      return waited.err.ends_with("\ndlock: build: 2 of 4 have arrived\n");
    });
    CHECK(waited.exit_code == 75);
    CHECK(waited.err.ends_with("\ndlock: build: 2 of 4 have arrived\n"));
    const auto quiet = place.dlock(latch("wait", {"-q", "-w", "0.2"}));
    CHECK(quiet.exit_code == 75);
    CHECK(quiet.out + quiet.err == "");
  });
}

TEST_CASE("latch: one that is not there, or ends, is 79 and says what to do") {
  on_each_engine([](const Place& place) {
    const auto is_missing = [](const Result& result) {
      check_says(result, 79,
                 "dlock: there is no latch build: it was never opened, or its ttl has "
                 "expired; dlock latch open -k KEY --count N makes it\n");
      CHECK(result.out == "");
    };
    for (const char* verb : {"arrive", "wait"}) is_missing(place.dlock(latch(verb, {"-q"})));
    CHECK(place.dlock(latch("open", {"--count=2", "--ttl=400ms"})).exit_code == 0);
    is_missing(place.dlock(latch("wait", {})));
    is_missing(place.dlock(latch("arrive", {})));
  });
}

TEST_CASE("latch: opened again with another count it is 65, and says both") {
  on_each_engine([](const Place& place) {
    CHECK(place.dlock(latch("open", {"--count=4"})).exit_code == 0);
    place.dlock(latch("arrive", {}));
    CHECK(place.dlock(latch("open", {"--count=4"})).exit_code == 0);
    check_message(place.dlock(latch("open", {"--count=5"})), 65,
                  "build: the latch that is there is for 4, not for 5");
    CHECK(holds(place.dlock(latch("wait", {"-n"})).err, "build: 1 of 4 have arrived"));
  });
}

TEST_CASE("latch: a signal ends the waiting as it ends acquire, and a stop only interrupts it") {
  on_each_engine([](const Place& place) {
    place.dlock(latch("open", {"--count=1"}));
    Process killed = waiter(place), stopped = waiter(place);
    killed.signal(SIGTERM);
    CHECK(killed.wait().signal == SIGTERM);
    stopped.stop();
    place.dlock(latch("arrive", {}));
    stopped.signal(SIGCONT);
    CHECK(stopped.wait(milliseconds(20'000)).exit_code == 0);
    if (place.is_local()) return;
    CHECK(place.server().command({"KEYS", "*"}).items.size() == 1);
  });
}

TEST_CASE("latch: a line that cannot be is 64") {
  const Place place(Engine::local);
  struct Bad {
    Words words;
    std::string says;
  };
  const std::vector<Bad> lines{
      {{"latch"}, "missing verb: dlock latch open, arrive or wait"},
      {{"latch", "-k", "k"}, "missing verb"},
      {{"latch", "close", "-k", "k"}, "unknown verb \"close\": after latch comes open, arrive"},
      {{"latch", "open", "--count", "2"}, "missing key: dlock latch open -k KEY"},
      {{"latch", "wait"}, "missing key: dlock latch wait -k KEY"},
      {{"latch", "open", "a", "b", "--count", "2"}, "latch takes one key: \"b\" is another"},
      {{"latch", "open", "-k", "k"}, "missing count: dlock latch open -k KEY --count N"},
      {latch("open", {"--count", "0"}),
       "--count: invalid count \"0\": a number from 1 to 1000000 is expected"},
      {latch("open", {"--count", "1000001"}), "--count: invalid count \"1000001\""},
      {latch("open", {"--count", "-1"}), "--count: invalid count \"-1\""},
      {latch("open", {"--count", "four"}), "--count: invalid count \"four\""},
      {latch("open", {"--count", "2", "--ttl", "99ms"}),
       "--ttl: \"99ms\" is not between 100ms and 365d00h"},
      {latch("open", {"--count", "2", "--ttl", "366d"}), "--ttl: invalid duration \"366d\""},
      {latch("open", {"--count", "2", "--by", "x"}),
       "--by goes with latch arrive, not with latch open"},
      {latch("arrive", {"--count", "2"}), "--count goes with latch open, not with latch arrive"},
      {latch("arrive", {"-n"}), "--nonblock goes with latch wait"},
      {latch("arrive", {"-w", "1"}), "--wait goes with latch wait"},
      {latch("arrive", {"--by", "a b"}), "--by: \"a b\""},
      {latch("arrive", {"--by", ""}), "--by: the value is empty"},
      {latch("arrive", {"--by", std::string(129, 'x')}), "--by: "},
      {latch("wait", {"--ttl", "1h"}), "--ttl goes with latch open, not with latch wait"},
      {latch("wait", {"-w", "soon"}), "--wait: invalid duration \"soon\""},
      {{"run", "--count", "2", "-k", "k", "true"}, "--count is not a flag of run, but of latch"},
  };
  for (const Bad& line : lines) {
    check_message(place.dlock(line.words), 64, line.says);
  }
}

TEST_CASE("latch: a server that is not there is 69, one that goes away is waited for") {
  const Place place(Engine::redis);
  FaultProxy proxy(place.server().address());
  const ProcessOptions options{.env = {{"DLOCK_SERVER", proxy.url()}}};
  place.dlock(latch("open", {"--count=1"}), options);
  Process waits = place.start(latch("wait", {}), options);
  REQUIRE(eventually([&] { return says_that_it_waits(waits); }));
  proxy.refuse(true);
  proxy.close_connections();
  REQUIRE(eventually([&] { return holds(waits.err(), "; still waiting, trying again\n"); }));
  for (const Words& words :
       {latch("arrive", {}), latch("wait", {}), latch("open", {"--count=1"})}) {
    check_message(place.dlock(words, options), 69);
  }
  const auto never_reached = place.dlock(latch("wait", {"-w", "1"}), options);
  CHECK(never_reached.exit_code == 69);
  CHECK(!holds(never_reached.err, "dlock: waiting "));
  proxy.refuse(false);
  REQUIRE(eventually([&] { return holds(waits.err(), "the server answers again after "); }));
  CHECK(waits.running());
  place.dlock(latch("arrive", {}), options);
  CHECK(waits.wait().exit_code == 0);
}

bool latch_wait_ends_in_time() {
  const Place place(Engine::redis);
  // A waiter asks again when the latch's time ends.
  place.dlock(latch("open", {"--count=1", "--ttl=2s"}));
  const auto begun = BootClock::now();
  Process waits = place.start(latch("wait", {"-w", "3s"}));
  CHECK(eventually([&] { return says_that_it_waits(waits) || !waits.running(); }));
  place.server().stop();
  const auto result = waits.wait();
  place.server().cont();
  return result.exit_code == 69 && passed_since(begun) < milliseconds(6500);
}

TEST_CASE("latch: -w ends in time also where the server falls silent meanwhile, 69") {
  CHECK(in_one_of(3, latch_wait_ends_in_time));
}

}  // namespace
}  // namespace dlock::test
