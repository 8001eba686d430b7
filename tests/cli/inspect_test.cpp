#include <doctest/doctest.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <regex>
#include <string>

#include "base/text.hpp"
#include "cli/databases.hpp"
#include "cli/live_support.hpp"
#include "cli/place.hpp"
#include "support/etcd_servers.hpp"

namespace dlock::test {
namespace {

using Json = nlohmann::ordered_json;

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_match(text, std::regex(pattern));
}

using Keys = std::vector<std::string>;

TEST_CASE("inspect: where there is nothing, a terminal is told so, and a pipe gets nothing") {
  on_each_engine([](const Place& place) {
    CHECK(place.dlock({"inspect"}).out == "");
    CHECK(place.dlock({"inspect", "--json"}).out == "");
    Watcher user(place);
    user.type("$D inspect 'x*'; echo code-$?");
    CHECK(user.shows("\nno locks\r\ncode-0"));
    user.type("$D inspect --json; echo json-$?");
    CHECK(user.shows("json-0"));
    CHECK(user.count("no locks\r") == 1);
  });
}

TEST_CASE("inspect: --json has these names in this order, and true values") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("nightly", {"--label", "a label", "-t", "20s"});
    const auto waiter = place.start({"run", "-s", "-k", "nightly", "--", "/bin/true", "secret"});
    REQUIRE(eventually([&] { return place.waiters("nightly") == 1; }));
    const auto text = place.dlock({"inspect", "nightly", "--json"}).out;
    CHECK(count_lines(text) == 1);
    CHECK(!holds(text, "secret"));
    const auto object = Json::parse(text);
    CHECK(names(object) == Keys{"key", "holders", "waiters"});
    const auto& held = object["holders"][0];
    Keys of_holder{"owner",       "host",    "pid",           "user",   "command",        "label",
                   "acquired_at", "held_ms", "lease_left_ms", "ttl_ms", "renewed_ms_ago", "via",
                   "mode",        "limit",   "holds",         "fence"};
    if (held.contains("command_pid")) of_holder.insert(of_holder.begin() + 5, "command_pid");
    CHECK(names(held) == of_holder);
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    CHECK(object["key"] == "nightly");
    CHECK(held["host"] == host);
    CHECK(held["pid"] == holder.pid());
    CHECK(held["user"] == getpwuid(geteuid())->pw_name);
    CHECK(held["command"] == "sh");
    CHECK(held["label"] == "a label");
    CHECK(matches(held["acquired_at"], R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"));
    CHECK(held["held_ms"] < 20'000);
    CHECK(held["limit"] == 1);
    CHECK(held["holds"] == 1);
    CHECK(held["via"] == "run");
    CHECK(held["mode"] == "exclusive");
    if (place.is_local()) {
      for (const char* name : {"lease_left_ms", "ttl_ms", "renewed_ms_ago"}) {
        CHECK(held[name] == nullptr);
      }
    } else {
      CHECK(held["lease_left_ms"] <= 20'000);
      CHECK(held["ttl_ms"] == 20'000);
      CHECK(held["renewed_ms_ago"] < 20'000);
    }
    const auto& waits = object["waiters"][0];
    CHECK(names(waits) == Keys{"position", "owner", "host", "pid", "user", "command", "label",
                               "waiting_ms", "limit"});
    CHECK(waits["position"] == 1);
    CHECK(waits["pid"] == waiter.pid());
    CHECK(waits["command"] == "true");
    CHECK(waits["limit"] == nullptr);
  });
}

TEST_CASE("inspect: one key in words, its holders and its queue") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("nightly", {"--label", "job 7", "-t", "20s"});
    const auto waiter = place.start({"run", "-k", "nightly", "--", "true"});
    REQUIRE(eventually([&] { return place.waiters("nightly") == 1; }));
    const auto text = place.dlock({"inspect", "nightly"}).out;
    CAPTURE(text);
    const std::string lease =
        place.is_local() ? "" : R"(, lease \d+s of 20s left,\s+renewed \S+ ago by run)";
    CHECK(matches(text, R"(nightly\n  held by    \S+@\S+ pid )" + std::to_string(holder.pid()) +
                            R"( +\((dlock: )?sh(, pid \d+)?\) +for \S+,\s+\[job 7\], since \S+Z)" +
                            lease + R"(, limit 1,\s+fence \d+\n    1\. waits \S+@\S+ pid )" +
                            std::to_string(waiter.pid()) +
                            R"( +\(true\) +for \S+,\s+since \S+Z, limit 1\n)"));
  });
}

TEST_CASE("inspect: shows the process of the command beside that of dlock") {
  on_each_engine([](const Place& place) {
    auto holder = patient_start(
        [&] {
          return place.start(
              {"run", "-k", "a", "-t", "15s", "--", "sh", "-c", "echo $$; exec sleep 60"});
        },
        [](const Process& run) { return run.out().ends_with("\n"); }, "the command did not start");
    const std::string pid = holder.out().substr(0, holder.out().size() - 1);
    // A server learns the pid with the first renewal.
    REQUIRE(eventually([&] { return place.state("a")["holders"][0].contains("command_pid"); }));
    const auto held = place.state("a")["holders"][0];
    CHECK(held["pid"] == holder.pid());
    CHECK(std::to_string(held["command_pid"].get<int>()) == pid);
    const std::string process = "(dlock: sh, pid " + pid + ")";
    CHECK(holds(place.dlock({"inspect", "a"}).out, process));
    CHECK(holds(place.dlock({"run", "-n", "-k", "a", "--", "true"}).err, process));
  });
}

TEST_CASE("inspect: of a free key it says who held it last, and since when") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a", {"--label", "ticket 17"});
    const auto held = place.state("a");
    CHECK(!held.contains("last"));
    REQUIRE(place.dlock({"release", "a", "--token", token}).exit_code == 0);
    const auto last = place.state("a")["last"];
    CHECK(names(last) == Keys{"host", "pid", "user", "command", "label", "via", "acquired_at",
                              "fence", "how", "ended_at", "exit_code"});
    for (const auto& [name, value] : held["holders"][0].items()) {
      // The local engine computes that of a holder from the age of its hold.
      const bool is_exact = name != "acquired_at" || !place.is_local();
      if (last.contains(name) && is_exact) CHECK(value == last[name]);
    }
    const auto text = place.dlock({"inspect", "a"}).out;
    CAPTURE(text);
    CHECK(matches(text, R"(a is free\n  last held by \S+@\S+ pid \d+ \(\S+\), \[ticket 17\],\s+)"
                        R"(granted \S+Z,\s+released \S+Z after \S+,\s+fence \d+\n)"));
    // After a hand-over, the last holder counts.
    auto first = place.hold("b");
    auto second = place.start({"run", "-k", "b", "--label", "second", "--", "true"});
    REQUIRE(eventually([&] { return place.waiters("b") == 1; }));
    first.signal(SIGTERM);
    CHECK(second.wait().exit_code == 0);
    CHECK(place.state("b")["last"]["label"] == "second");
  });
}

TEST_CASE("inspect: says free, and -q says it with the exit code") {
  on_each_engine([](const Place& place) {
    CHECK(place.dlock({"inspect", "a"}).out ==
          "a is free; nobody has locked it in the last seven days\n");
    CHECK(place.dlock({"inspect", "a"}).exit_code == 0);
    CHECK(place.dlock({"inspect", "a", "--json"}).out ==
          "{\"key\":\"a\",\"holders\":[],\"waiters\":[]}\n");
    CHECK(place.dlock({"inspect", "-q", "a"}).exit_code == 1);
    const auto token = place.acquired("b");
    for (const std::vector<std::string>& words : {std::vector<std::string>{"inspect", "-q", "b"},
                                                  {"inspect", "-q", "a", "b"},
                                                  {"inspect", "-q", "?"},
                                                  {"inspect", "-q"}}) {
      const auto result = place.dlock(words);
      CHECK(result.exit_code == 0);
      CHECK(result.out + result.err == "");
    }
    CHECK(place.dlock({"inspect", "-q", "a", "c"}).exit_code == 1);
    CHECK(place.dlock({"inspect", "-q", "z*"}).exit_code == 1);
  });
}

TEST_CASE("inspect: 71 when its output cannot be written") {
  on_each_engine([](const Place& place) {
    place.acquired("a");
    for (const char* line :
         {"inspect a >&-", "inspect a --json >/dev/full", "--help >/dev/full", "-V >&-"}) {
      const auto result = place.shell(R"("$D" )" + std::string(line));
      check_message(result, 71);
    }
  });
}

TEST_CASE("inspect: a pipe that is full and does not block gets all in the end") {
  const Place place(Engine::local);
  place.acquired("a");
  const FullPipe pipe(FullPipe::Writers::try_again);
  auto inspect = place.start({"inspect", "a", "--json"}, {.stdout_fd = pipe.writer.get()});
  std::string got;
  CHECK(eventually([&] { return is_in_state('S', inspect.pid()) || !inspect.running(); }));
  CHECK(eventually([&] {
    char bytes[4096];
    const auto length = read(pipe.reader.get(), bytes, sizeof bytes);
    if (length > 0) got.append(bytes, static_cast<std::size_t>(length));
    return got.ends_with("}\n") || (length < 0 && !inspect.running());
  }));
  CHECK(got.ends_with("}\n"));
  CHECK(inspect.wait().exit_code == 0);
}

TEST_CASE("inspect, --help and acquire: nobody reads the pipe any more") {
  const Place place(Engine::local);
  place.acquired("a");
  const std::string nobody_reads = "mkfifo p; exec 3<>p 4>p 3<&-; ";
  for (const char* line : {"inspect", "inspect a", "inspect --json", "inspect --watch",
                           "inspect --watch --json", "doctor", "--help", "run --help", "-V"}) {
    CAPTURE(line);
    const auto result =
        place.shell("rm -f p; " + nobody_reads + R"("$D" )" + line + " >&4; echo code $? >&2");
    // It dies of SIGPIPE silently, like any Unix filter.
    CHECK(result.err == "code 141\n");
  }
  const auto result = place.shell("rm -f p; " + nobody_reads + R"("$D" acquire -k b -t 9s >&4)");
  check_message(result, 71);
  CHECK(place.dlock({"inspect", "-q", "b"}).exit_code == 1);
}

}  // namespace

namespace {

TEST_CASE("large answers: keys of others with large values do not spoil the list of locks") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto put = [&](const std::string& key, std::size_t bytes) {
    etcd.ask("kv/put", {{"key", to_base64(key)}, {"value", to_base64(std::string(bytes, 'x'))}});
  };
  // The last one is the largest that etcd takes.
  for (int i = 0; i < 12; ++i) put("dlock:k:b" + std::to_string(i), 200'000);
  put("dlock:k:c", 500'000);
  put("dlock:k:z", 1'572'700);
  for (const char* key : {"a", "bb", "d"}) {
    REQUIRE(dlock_at(etcd.url(), {"acquire", "-t", "60s", key}).exit_code == 0);
  }
  const ProcessOptions options = at(etcd.url());
  Result listed;
  // A busy machine may take longer for some megabytes than inspect waits.
  in_one_of(10, [&] { return (listed = dlock({"inspect", "--json"}, options)).exit_code == 0; });
  CAPTURE(listed.err);
  CHECK(listed.exit_code == 0);
  for (const char* key : {"\"a\"", "\"bb\"", "\"d\""}) CHECK(holds(listed.out, key));
  for (const char* key : {"c", "z"}) CHECK(dlock({"inspect", key}, options).exit_code == 65);
}

}  // namespace

}  // namespace dlock::test
