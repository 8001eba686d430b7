#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "cli/place.hpp"
#include "support/files.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

using Json = nlohmann::ordered_json;

TEST_CASE("acquire: prints the token alone, and the lock stays when it has left") {
  on_each_engine([](const Place& place) {
    const auto result = place.dlock({"acquire", "-k", "a", "-t", "1m"});
    check_quiet(result);
    CHECK(count_lines(result.out) == 1);
    const auto token = result.out.substr(0, result.out.size() - 1);
    CHECK(token.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-._:@/") == std::string::npos);
    CHECK(!place.is_free("a"));
    CHECK(!holds(place.dlock({"inspect", "--json"}).out, token));
    CHECK(!holds(place.dlock({"inspect", "a"}).out, token));
  });
}

TEST_CASE("acquire: --json, --env and -q") {
  on_each_engine([](const Place& place) {
    const auto object = Json::parse(place.dlock({"acquire", "b", "a", "-t", "1m", "--json"}).out);
    CHECK(names(object) ==
          std::vector<std::string>{"token", "owner", "ttl_ms", "waited_ms", "locks"});
    CHECK(object["ttl_ms"] == 60'000);
    CHECK(object["locks"].size() == 2);
    CHECK(names(object["locks"][0]) == std::vector<std::string>{"key", "fence"});
    CHECK(object["locks"][0]["key"] == "b");
    CHECK(place.dlock({"release", "a", "b", "--token", object["token"]}).exit_code == 0);

    const auto sourced = place.shell(
        R"sh("$D" acquire -k b -k a -t 1m --env >env && . ./env && cat env &&
           [ "$("$D" inspect b --json | grep -c "${DLOCK_FENCE%,*}")" = 1 ] &&
           [ "$("$D" inspect a --json | grep -c "${DLOCK_FENCE#*,}")" = 1 ] &&
           "$D" release a b --token "$DLOCK_TOKEN" && echo done)sh");
    CHECK(count_lines(sourced.out) == 4);
    CHECK(sourced.out.starts_with("DLOCK_TOKEN="));
    CHECK(holds(sourced.out, "\nDLOCK_FENCE="));
    CHECK(holds(sourced.out, "\nDLOCK_OWNER="));
    CHECK(sourced.out.ends_with("\ndone\n"));

    const auto quiet = place.dlock({"acquire", "-q", "a", "-t", "1m"});
    CHECK(quiet.exit_code == 0);
    CHECK(quiet.out + quiet.err == "");
    CHECK(!place.is_free("a"));
  });
}

TEST_CASE("renew, release: --json says what became of each key") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a");
    const auto fence = place.state("a")["holders"][0]["fence"];
    const auto renewed =
        Json::parse(place.dlock({"renew", "a", "--json", "--token", token, "-t", "50s"}).out);
    CHECK(renewed == Json{{"key", "a"}, {"renewed", true}, {"ttl_ms", 50'000}, {"fence", fence}});
    CHECK(place.dlock({"renew", "a", "-q", "--json", "--token", token}).out == "");

    const auto some = place.dlock({"release", "b", "a", "--json", "--token", token});
    CHECK(some.exit_code == 79);
    CHECK(is_one_message(some.err));
    CHECK(some.out == "{\"key\":\"b\",\"released\":false}\n{\"key\":\"a\",\"released\":true}\n");
    const auto gone = place.dlock({"renew", "a", "--json", "--token", token});
    CHECK(gone.exit_code == 79);
    CHECK(gone.out == "{\"key\":\"a\",\"renewed\":false}\n");

    place.acquired("a", {"--label", "one"});
    const auto evicted = Json::parse(place.dlock({"release", "--force", "a", "--json"}).out);
    CHECK(evicted["released"] == true);
    REQUIRE(evicted["evicted"].size() == 1);
    CHECK(evicted["evicted"][0]["label"] == "one");
    const auto nobody = Json::parse(place.dlock({"release", "--force", "a", "--json"}).out);
    CHECK(nobody == Json{{"key", "a"}, {"released", false}, {"evicted", Json::array()}});
  });
}

TEST_CASE("acquire: with --env a run of the same key later in the script re-enters the lock") {
  on_each_engine([](const Place& place) {
    const auto result = place.shell(
        R"sh("$D" acquire -k a -k b -t 1m --env >env && set -a && . ./env &&
           "$D" run -n -k a -- echo in && "$D" run -n -k b -- echo in &&
           "$D" release a b && "$D" inspect -q a b; echo "free $?")sh");
    CHECK(result.out == "in\nin\nfree 1\n");
    CHECK(result.err == "");
  });
}

TEST_CASE("acquire: a run that waits for the script that started it names the deadlock") {
  on_each_engine([](const Place& place) {
    const auto said_by = [](const Process& waiter) {
      REQUIRE(
          eventually([&] { return says_that_it_waits(waiter) && waiter.err().ends_with('\n'); }));
      return waiter.err();
    };
    const auto own = place.start_shell(
        R"sh(T=$("$D" acquire -k a -t 1m); echo $$
           "$D" run -k a -- true; "$D" release a --token "$T")sh");
    const std::string told = said_by(own);
    const std::string pid = own.out().substr(0, own.out().find('\n'));
    CHECK(holds(told, "pid " + pid + " started this dlock"));
    const auto other = place.hold("b");
    const auto stranger = place.start({"run", "-k", "b", "--", "true"});
    CHECK(!holds(said_by(stranger), "started this dlock"));
  });
}

TEST_CASE("acquire: to a process of another container with the holder's pid it is no deadlock") {
  const Place place(Engine::redis);
  // Process 1 of the container is a shell, process 2 the script.
  const auto in_a_container = [&](const std::string& script) {
    ProcessOptions options;
    options.env["SCRIPT"] = script;
    return place.shell(
        R"(unshare --pid --fork --kill-child --mount-proc sh -c 'sh -c "$SCRIPT"; exit $?')",
        options);
  };
  if (skip_if(in_a_container("exit 7").exit_code != 7, "no containers here")) return;
  const auto holding = in_a_container(R"("$D" acquire -q -k a -t 2m; echo $$)");
  REQUIRE(holding.exit_code == 0);
  REQUIRE(eventually([&] { return place.state("a")["holders"][0]["held_ms"] > 2000; }));
  const auto waiting = in_a_container(R"("$D" run -w 100ms -k a -- true; echo $$)");
  CAPTURE(waiting.err);
  CHECK(waiting.out == holding.out);
  CHECK(place.state("a")["holders"][0]["pid"] == std::stol(waiting.out));
  CHECK(holds(waiting.err, "waiting"));
  CHECK(!holds(waiting.err, "started this dlock"));
}

TEST_CASE("acquire: whose caller is outside of the container is shown as the holder itself") {
  const Place place(Engine::redis);
  const auto result = place.shell(
      R"(unshare --pid --fork --kill-child --mount-proc true || exit 99
         unshare --pid --fork --kill-child --mount-proc "$D" acquire -q -k a -t 2m)");
  if (skip_if(result.exit_code == 99, "no containers here")) return;
  REQUIRE(result.exit_code == 0);
  const auto holder = place.state("a")["holders"][0];
  CHECK(holder["pid"] == 1);
  CHECK(holder["command"] == "dlock");
}

TEST_CASE("acquire: a wrong or old token releases nothing") {
  on_each_engine([](const Place& place) {
    const auto old = place.acquired("a");
    CHECK(place.dlock({"release", "a", "--token", old}).exit_code == 0);
    const auto token = place.acquired("a");
    for (const std::string& wrong : {old, old + "0", std::string("x"), token + "/a"}) {
      for (const char* command : {"release", "renew"}) {
        const auto result = place.dlock({command, "a", "--token", wrong});
        check_message(result, 79);
        CHECK(!holds(result.err, wrong + " "));
      }
    }
    CHECK(!place.is_free("a"));
    CHECK(place.dlock({"release", "a", "--token", token}).exit_code == 0);
  });
}

TEST_CASE("renew, release: without a key all keys of the token, and no other token's") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a", {"-k", "b", "--owner", "ci"});
    const auto other = place.acquired("c", {"--owner", "ci"});
    const auto renewed = place.dlock({"renew", "--token", token, "-t", "1h", "--json"});
    CHECK(renewed.exit_code == 0);
    CHECK(count_lines(renewed.out) == 2);
    CHECK(place.state("b")["holders"][0]["lease_left_ms"] > 120'000);
    CHECK(place.state("c")["holders"][0]["lease_left_ms"] <= 60'000);

    ProcessOptions options;
    options.env["DLOCK_TOKEN"] = token;
    check_quiet(place.dlock({"release"}, options));
    CHECK(place.is_free("a"));
    CHECK(place.is_free("b"));
    CHECK(!place.is_free("c"));
    const auto again = place.dlock({"release"}, options);
    CHECK(again.exit_code == 79);
    CHECK(again.err.starts_with("dlock: this token holds nothing at "));
    check_quiet(place.dlock({"release", "--token", other}));
  });
}

TEST_CASE("renew, release: without a key a hold inside another one is found") {
  on_each_engine([](const Place& place) {
    const auto result = place.shell(R"sh("$D" acquire -k a -t 1m --env >env && . ./env &&
        export DLOCK_OWNER && T=$("$D" acquire -k a -t 1m) && "$D" renew --token "$T" && "$D" release --token "$T" &&
        ! "$D" inspect -q free && "$D" inspect -q a && "$D" release --token "$DLOCK_TOKEN" &&
        ! "$D" inspect -q a && echo done)sh");
    CHECK(result.out == "done\n");
  });
}

TEST_CASE("renew, release: without a key a key that was lost meanwhile is noticed") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a", {"-k", "b"});
    CHECK(place.dlock({"release", "--force", "a"}).exit_code == 0);
    for (const std::string command : {"renew", "release"}) {
      const auto result = place.dlock({command, "--token", token});
      CHECK(result.exit_code == 79);
      CHECK(holds(result.err, "dlock: this token held only 1 of its 2 keys at "));
      CHECK(place.is_free("b") == (command == "release"));
    }
  });
}

TEST_CASE("release: in a trap a lost lock does not hide the exit code of the script") {
  on_each_engine([](const Place& place) {
    for (const std::string shell : {"sh", "bash"}) {
      const auto result =
          place.shell(shell + R"sh( -euc 'TOKEN=$("$D" acquire -k "a$0" -k "b$0" -t 1m)
          trap "\"$D\" release -q --token \"$TOKEN\" || true" EXIT
          "$D" release -q --force "a$0" "b$0"
          exit 3')sh");
      CHECK(result.exit_code == 3);
      CHECK(is_one_message(result.err));
    }
  });
}

TEST_CASE("renew: without -t by the ttl of the grant, with -t by that") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a");
    const auto left = [&] { return place.state("a")["holders"][0]["lease_left_ms"].get<long>(); };
    CHECK(place.dlock({"renew", "a", "--token", token, "-t", "10s"}).exit_code == 0);
    CHECK(left() <= 10'000);
    ProcessOptions options;
    options.env["DLOCK_TTL"] = "1h";  // a setting of run and acquire
    CHECK(place.dlock({"renew", "a", "--token", token}, options).exit_code == 0);
    CHECK(left() > 30'000);
    CHECK(left() <= 60'000);
  });
}

TEST_CASE("release: --force evicts all holders, or the one with this fence, and names them") {
  on_each_engine([](const Place& place) {
    const auto first = place.acquired("a", {"-s", "--label", "one"});
    const auto second = place.acquired("a", {"-s", "--label", "two"});
    const auto fence = std::to_string(place.state("a")["holders"][1]["fence"].get<long>());

    const auto one = place.dlock({"release", "--force", "--fence", fence, "a"});
    CHECK(one.exit_code == 0);
    CHECK(is_one_message(one.err));
    CHECK(holds(one.err, "[two]"));
    CHECK(holds(one.err, fence));
    CHECK(place.state("a")["holders"].size() == 1);

    check_message(place.dlock({"release", "--force", "--fence", fence, "a"}), 79);

    check_says(place.dlock({"release", "--force", "-k", "a"}), 0, "[one]");
    CHECK(place.is_free("a"));
    CHECK(place.dlock({"release", "a", "--token", first}).exit_code == 79);

    const auto nobody = place.dlock({"release", "--force", "a"});
    check_ran(nobody, "");
    CHECK(is_one_message(nobody.err));
  });
}

TEST_CASE("acquire: gives the lock back when its output cannot be written") {
  on_each_engine([](const Place& place) {
    for (const char* target : {">&-", ">/dev/full"}) {
      for (const char* format : {"", "--json", "--env"}) {
        const std::string line = R"("$D" acquire -k a -t 1m )";
        check_message(place.shell(line + format + " " + target), 71, "released");
        CHECK(place.is_free("a"));
      }
    }
    CHECK(place.shell(R"("$D" acquire -q -k a -t 1m >&-)").exit_code == 0);
    CHECK(!place.is_free("a"));
  });
}

}  // namespace

namespace {

TEST_CASE("release: --force evicts the holders of all keys that match a pattern, and lists them") {
  on_each_engine([](const Place& place) {
    place.acquired("build-1", {"--label", "one"});
    place.acquired("build-2", {"--label", "two"});
    place.acquired("other", {"--label", "three"});
    const auto evicted = place.dlock({"release", "--force", "--yes", "build-*", "build-1"});
    CHECK(evicted.exit_code == 0);
    CHECK(count_lines(evicted.err) == 2);
    CHECK(holds(evicted.err, "[one]"));
    CHECK(holds(evicted.err, "[two]"));
    CHECK(place.is_free("build-1"));
    CHECK(place.is_free("build-2"));
    CHECK(!place.is_free("other"));
  });
}

/// Whether a process has a waiter's FIFO open.
bool reaches_a_waiter(pid_t pid) {
  std::error_code gone;
  const std::string fds = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& each : std::filesystem::directory_iterator(fds, gone)) {
    if (holds(std::filesystem::read_symlink(each, gone).string(), "/.wait-")) return true;
  }
  return false;
}

TEST_CASE("release: a waiter that dies just before it is told of the release does not end that") {
  const Place place(Engine::local);
  // Without permission to trace, the waiter dies at any moment.
  const auto slow = place
                        .shell(R"(
      slow='strace -D -qq -o /dev/null -e trace=write -e inject=write:delay_enter=1000000'
      $slow true 2>/dev/null && echo "$slow")")
                        .out;
  const std::string token = place.acquired("a");
  auto waiter = place.start({"run", "-q", "-k", "a", "--", "true"});
  REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
  auto release = place.start_shell("exec " + slow.substr(0, slow.find('\n')) +
                                   R"( "$D" release -k a --token )" + token);
  CHECK(eventually([&] { return reaches_a_waiter(release.pid()) || !release.running(); }));
  waiter.signal(SIGKILL);
  CHECK(release.wait().exit_code == 0);
  CHECK(place.is_free("a"));
}

TEST_CASE("release: of several keys all are released, though nobody reads the list of them") {
  on_each_engine([](const Place& place) {
    const auto result = place.shell(R"(
        T=$("$D" acquire -k a -k b -t 30s)
        mkfifo p; exec 3<>p 4>p 3<&-
        "$D" release --json a b --token "$T" >&4 2>err
        echo $?)");
    CHECK(result.out == "71\n");
    CHECK(place.is_free("a"));
    CHECK(place.is_free("b"));
  });
}

TEST_CASE("release: a key that is named twice counts once") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a");
    CHECK(place.dlock({"release", "-k", "a", "--token", token, "a", "a"}).exit_code == 0);
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("release: --force says that no lock matches a pattern") {
  on_each_engine([](const Place& place) {
    place.acquired("other");
    const auto none = place.dlock({"release", "--force", "build-*"});
    CHECK(none.exit_code == 0);
    CHECK(none.err == "dlock: no lock matches build-*\n");
    CHECK(!place.is_free("other"));
  });
}

TEST_CASE(
    "release: after an acquire that failed, a step that always runs succeeds with a warning") {
  on_each_engine([](const Place& place) {
    const auto holder = place.acquired("a");
    const auto step = place.shell(
        R"(T=$("$D" acquire -q -n -k a -t 1m); echo "acquire $?"
           "$D" release -k a --token "$T"; echo "release $?"
           DLOCK_TOKEN= "$D" release -k a; echo "release $?")");
    CHECK(step.out == "acquire 75\nrelease 0\nrelease 0\n");
    CHECK(count_lines(step.err) == 2);
    CHECK(holds(step.err, "dlock: a: the token is empty, so nothing was released"));
    CHECK(!place.is_free("a"));
    CHECK(place.dlock({"release", "-k", "a", "--token", holder}).exit_code == 0);
  });
}

TEST_CASE("release: --force --reason tells the holder who evicted it and why") {
  on_each_engine([](const Place& place) {
    auto victim = place.begun_shell(
        R"("$D" run -k a -t 9s --status-fd 3 -- sh -c 'echo in; exec sleep 60' 3>status)");
    const auto token = place.acquired("b");
    const auto evicted = place.dlock({"release", "--force", "--reason", "stuck deploy", "a", "b"});
    CHECK(evicted.exit_code == 0);
    CHECK(count_lines(evicted.err) == 2);
    CHECK(holds(evicted.err, ": stuck deploy\n"));

    const auto lost = victim.wait();
    check_says(lost, 79, "evicted by ");
    CHECK(holds(lost.err, ": stuck deploy; COMMAND was stopped"));
    const auto status = nlohmann::ordered_json::parse(read_file(place.dir() / "status"));
    CHECK(status["evicted_by"]["reason"] == "stuck deploy");
    CHECK(names(status["evicted_by"]) == std::vector<std::string>{"host", "pid", "user", "reason"});

    for (const char* command : {"renew", "release"}) {
      const auto late = place.dlock({command, "b", "--token", token, "--json"});
      check_says(late, 79, "b is not held by this token: evicted by ");
      CHECK(holds(late.err, ": stuck deploy\n"));
      CHECK(nlohmann::ordered_json::parse(late.out)["evicted_by"]["reason"] == "stuck deploy");
    }
  });
}

}  // namespace

}  // namespace dlock::test
