#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>

#include "cli/line.hpp"
#include "cli/place.hpp"
#include "support/fault_proxy.hpp"
#include "support/files.hpp"
#include "support/overlap.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

/// The time until `key` is free for others.
milliseconds time_until_free(const Place& place, const std::string& key) {
  const auto begun = BootClock::now();
  CHECK(place.dlock({"run", "-q", "-k", key, "-w", "20", "--", "true"}).exit_code == 0);
  return std::chrono::floor<milliseconds>(BootClock::now() - begun);
}

TEST_CASE("holding: a nested run of the same key does not block, and the outer keeps the lock") {
  on_each_engine([](const Place& place) {
    const auto result = place.shell(
        R"("$D" run -k a -- sh -c '
             "$D" run -k a -w 5 -- echo inner
             "$D" inspect -q a; echo "held $?"
             env -u DLOCK_OWNER "$D" run -q -n -k a -- echo stranger; echo "stranger $?"'
           "$D" inspect -q a; echo "after $?")");
    CHECK(result.out == "inner\nheld 0\nstranger 75\nafter 1\n");
  });
}

TEST_CASE("holding: the outer keeps the lock when the inner is killed with SIGKILL") {
  on_each_engine([](const Place& place) {
    const auto nested = R"("$D" run -k a -- sh -c '
             "$D" run -k a -t 6s -- sh -c "echo inner; exec sleep 60" & inner=$!
             while [ ! -e kill ]; do
               kill -0 $inner 2>/dev/null || { wait $inner; exit; }
               sleep 0.01
             done
             kill -9 $inner; wait $inner
             echo killed
             while [ ! -e end ]; do sleep 0.01; done')";
    auto outer = patient_start([&] { return place.start_shell(nested); },
                               [](const Process& shell) { return shell.out() == "inner\n"; },
                               "the inner did not begin");
    CHECK(place.state("a")["holders"][0]["holds"] == 2);
    write_file(place.dir() / "kill", "");
    REQUIRE(eventually([&] { return outer.out() == "inner\nkilled\n"; }));
    REQUIRE(eventually([&] {
      const auto holders = place.state("a")["holders"];
      return holders.size() == 1 && holders[0]["holds"] == 1;
    }));
    CHECK(place.dlock({"run", "-q", "-n", "-k", "a", "--", "true"}).exit_code == 75);
    write_file(place.dir() / "end", "");
    CHECK(outer.wait().exit_code == 0);
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("holding: a daemon left behind is a stranger once its job's lock is free") {
  on_each_engine([](const Place& place) {
    const auto left = place.start_shell(
        R"("$D" run -k a -- sh -c '
             setsid sh -c ": >left; while [ ! -e go ]; do sleep 0.01; done
                           \"\$D\" run -n -k a -- true; echo \$? >seen.new; mv seen.new seen" \
               >/dev/null 2>&1 &'
           exec sleep 60)");
    REQUIRE(wait_for_file(place.dir() / "left"));
    REQUIRE(eventually([&] { return place.is_free("a"); }));
    const auto other = place.hold("a");
    write_file(place.dir() / "go", "");
    REQUIRE(wait_for_file(place.dir() / "seen"));
    CHECK(read_file(place.dir() / "seen") == "75\n");
  });
}

TEST_CASE("holding: all who say the same --owner share the lock") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("a", {"--owner", "build-7"});
    CHECK(place.dlock({"run", "-n", "-k", "a", "--owner", "build-7", "-c", "echo $DLOCK_OWNER"})
              .out == "build-7\n");
    CHECK(
        place.dlock({"run", "-q", "-n", "-k", "a", "--owner", "build-8", "--", "true"}).exit_code ==
        75);
    ProcessOptions options{.env = {{"DLOCK_OWNER", "build-7"}}};
    CHECK(place.dlock({"run", "-n", "-k", "a", "--", "true"}, options).exit_code == 0);
    options.env["DLOCK_OWNER"] = "build-77";
    CHECK(place.dlock({"run", "-q", "-n", "-k", "a", "--", "true"}, options).exit_code == 75);
  });
}

TEST_CASE("holding: --max-hold stops the command and exits with 124") {
  on_each_engine([](const Place& place) {
    const auto gentle = place.dlock({"run", "-k", "a", "--max-hold", "0.2", "--", "sleep", "60"});
    check_message(gentle, 124);
    CHECK(gentle.duration < milliseconds(30'000));
    CHECK(place.dlock({"run", "-k", "a", "--max-hold", "1m", "-c", "exit 3"}).exit_code == 3);
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("holding: --min-hold keeps the key for a while, and dlock does not linger") {
  on_each_engine([](const Place& place) {
    const auto first = place.dlock({"run", "-k", "b", "--min-hold", "1m", "--", "true"});
    CHECK(first.exit_code == 0);
    CHECK(first.duration < milliseconds(30'000));
    check_message(place.dlock({"run", "-n", "-k", "b", "--", "true"}), 75, "--min-hold");
    CHECK(place.dlock({"run", "-k", "a", "--min-hold", "5s", "--", "true"}).exit_code == 0);
    CHECK(time_until_free(place, "a") < stretched(milliseconds(10'000)));
  });
}

TEST_CASE("holding: --min-hold keeps no key of a run that ended while it waited for another") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("b");
    const auto with = [](const std::string& wait) {
      std::vector<std::string> words{"run", "-q", "-k", "a", "-k", "b", "--min-hold", "2m"};
      if (!wait.empty()) words.insert(words.end(), {"-w", wait});
      words.insert(words.end(), {"--", "true"});
      return words;
    };
    for (const char* wait : {"0s", "200ms"}) {
      CHECK(place.dlock(with(wait)).exit_code == 75);
      CHECK(place.is_free("a"));
    }
    // A server cannot tell whether the command of a killed dlock has started.
    std::vector<int> signals{SIGTERM};
    if (place.is_local()) signals.push_back(SIGKILL);
    for (const int signal : signals) {
      auto waiter = place.start(with(""));
      REQUIRE(eventually([&] { return place.waiters("b") == 1; }));
      CHECK(!place.is_free("a"));
      waiter.signal(signal);
      waiter.wait();
      CHECK(place.is_free("a"));
    }
  });
}

TEST_CASE("holding: a holder that was thrown out stops its command and exits with 79") {
  on_each_engine([](const Place& place) {
    auto holder = place.begun_shell(
        R"("$D" run -t 6s -k a -E 3 --status-fd 3 -- sh -c "echo in; exec sleep 60" 3>status)");
    const auto thrown = place.dlock({"release", "--force", "-k", "a"});
    CHECK(thrown.exit_code == 0);
    CHECK(is_one_message(thrown.err));
    const Result result = holder.wait(milliseconds(30'000));
    check_says(result, 79, "dlock: lost a: ");
    CHECK(is_one_message(result.err));
    const auto status = nlohmann::json::parse(read_file(place.dir() / "status"));
    CHECK(status["outcome"] == "lost");
    CHECK(status["exit_code"] == 79);
    CHECK(status["child_signal"] == SIGTERM);
  });
}

TEST_CASE("holding: under --on-lost ignore the command runs on, and its code is the exit code") {
  on_each_engine([](const Place& place) {
    auto holder = place.begun_shell(R"("$D" run -t 6s -k a --on-lost ignore --status-fd 3 -- \
             sh -c "echo in; while [ ! -e end ]; do sleep 0.01; done; exit 5" 3>status)");
    CHECK(place.dlock({"release", "--force", "-k", "a"}).exit_code == 0);
    REQUIRE(eventually([&] { return holds(holder.err(), "--on-lost ignore"); }));
    CHECK(holder.running());
    write_file(place.dir() / "end", "");
    const Result result = holder.wait();
    CHECK(result.exit_code == 5);
    CHECK(is_one_message(result.err));
    const auto status = nlohmann::json::parse(read_file(place.dir() / "status"));
    CHECK(status["outcome"] == "exited");
    CHECK(status["exit_code"] == 5);
    CHECK(status["lost"] == true);
  });
}

TEST_CASE("holding: a loss that is ignored is warned of also with -q, once") {
  on_each_engine([](const Place& place) {
    auto holder = place.begun_shell(R"("$D" run -q -t 6s -k a --on-lost ignore -- \
             sh -c "echo in; while [ ! -e end ]; do sleep 0.01; done")");
    CHECK(place.dlock({"release", "--force", "-k", "a"}).exit_code == 0);
    CHECK(eventually([&] { return holds(holder.err(), "lost a: "); }));
    write_file(place.dir() / "end", "");
    const auto result = holder.wait();
    CHECK(result.exit_code == 0);
    CHECK(is_one_message(result.err));
  });
}

TEST_CASE("holding: a waiter that a killed holder lets in keeps that key while it waits for more") {
  const Place place(Engine::local);
  auto first = place.hold("a"), second = place.hold("b");
  auto waiter = place.start({"run", "-k", "a", "-k", "b", "--", "true"});
  REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
  first.signal(SIGKILL);
  REQUIRE(eventually([&] { return place.waiters("b") == 1; }));
  // An unconfirmed hand-over expires after two seconds.
  const auto end = later(BootClock::now(), milliseconds(3000));
  while (BootClock::now() < end) {
    CHECK(place.dlock({"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
    usleep(100'000);
  }
  second.signal(SIGTERM);
  CHECK(waiter.wait().exit_code == 0);
}

TEST_CASE("holding: under --on-lost ignore the keys that are left are renewed") {
  on_each_engine([](const Place& place) {
    if (place.is_local()) return;  // there are no renewals there
    auto holder = place.begun_shell(R"("$D" run -t 6s -k a -k b --on-lost ignore -- \
             sh -c "echo in; while [ ! -e end ]; do sleep 0.01; done")");
    CHECK(place.dlock({"release", "--force", "-k", "a"}).exit_code == 0);
    REQUIRE(eventually([&] { return holds(holder.err(), "--on-lost ignore"); }));
    for (int i = 0; i < 2; ++i) await_renewal(place.server(), "b");
    CHECK(place.dlock({"inspect", "-q", "b"}).exit_code == 0);
    write_file(place.dir() / "end", "");
    CHECK(holder.wait().exit_code == 0);
  });
}

TEST_CASE("holding: a loss found only at release turns exit code 0 into 79, and no other") {
  on_each_engine([](const Place& place) {
    const auto run = [&](const std::string& options, int own, int expected) {
      CAPTURE(options);
      const auto result = place.shell(R"("$D" run -t 1m -k a --status-fd 3 )" + options +
                                      R"( -- sh -c '"$D" release -q --force -k a; exit )" +
                                      std::to_string(own) + "' 3>status");
      const auto status = nlohmann::json::parse(read_file(place.dir() / "status"));
      // A holder on this host learns of the eviction at once, maybe before its command ends.
      const bool at_release = status["outcome"] == "exited";
      CHECK((at_release || (place.is_local() && status["outcome"] == "lost")));
      CHECK(result.exit_code == (at_release ? expected : 79));
      CHECK(status["exit_code"] == result.exit_code);
      CHECK(is_one_message(result.err));
      if (!at_release) return;
      CHECK(status["child_exit"] == own);
      CHECK(status["lost"] == true);
    };
    run("", 0, 79);
    run("", 5, 5);
    run("--on-lost ignore", 0, 0);
  });
}

TEST_CASE("holding: a waiter whose idle connection is closed says nothing of it") {
  const Place place(Engine::redis);
  FaultProxy proxy(place.server().address());
  auto holder = place.hold("a");
  auto waiter = place.start({"run", "-k", "a", "--", "echo", "ran"},
                            {.env = {{"DLOCK_SERVER", proxy.url()}}});
  for (int i = 1; i <= 3; ++i) {
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    const auto before = proxy.connections();
    proxy.close_connections();
    REQUIRE(eventually([&] { return proxy.connections() > before; }));
  }
  holder.signal(SIGTERM);
  holder.wait();
  const auto result = waiter.wait();
  CHECK(result.out == "ran\n");
  CHECK(count_lines(result.err) == 2);
}

TEST_CASE("holding: a reader that a queued writer refuses is told of the writer") {
  on_each_engine([](const Place& place) {
    const auto reader = place.hold("a", {"-s"});
    const auto writer = place.start({"run", "-k", "a", "--label", "the writer", "--", "true"});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    const auto refused = place.dlock({"run", "-n", "-s", "-k", "a", "--", "true"});
    check_says(refused, 75, "; ahead of this request waits ");
    CHECK(holds(refused.err, "[the writer]"));
    const auto another = place.dlock({"run", "-n", "-k", "a", "--", "true"});
    CHECK(!holds(another.err, "ahead of this request"));
  });
}

TEST_CASE("holding: each line about a lock names its key, and none does so twice") {
  const Place place(Engine::redis);
  const auto late = place.dlock({"run", "-k", "nightly", "--max-hold=50ms", "--", "sleep", "60"});
  CHECK(late.err.starts_with("dlock: nightly: COMMAND ran longer than "));
  auto holder = place.hold("nightly");
  CHECK(place.dlock({"run", "-n", "-k", "nightly", "--", "true"})
            .err.starts_with("dlock: nightly is held by "));
  auto waiter = place.start({"run", "-k", "nightly", "-k", "weekly", "--", "true"});
  REQUIRE(eventually([&] { return place.waiters("nightly") == 1; }));
  place.server().kill_hard();
  REQUIRE(eventually([&] { return holds(waiter.err(), "still waiting, trying again"); }));
  CHECK(holds(waiter.err(), "\ndlock: nightly, weekly: unix://"));
  const auto refused = place.dlock({"run", "-n", "-k", "weekly", "--", "true"});
  CHECK(refused.err.starts_with("dlock: weekly: unix://"));
  // The message has this word, too.
  const auto common = place.dlock({"run", "-n", "-k", "connect", "--", "true"});
  CHECK(common.err.starts_with("dlock: connect: unix://"));
  CHECK(refused.exit_code == 69);
  place.server().restart();
  REQUIRE(eventually(
      [&] { return holds(waiter.err(), "\ndlock: nightly, weekly: the server answers again "); }));
}

TEST_CASE("holding: a waiter that is continued while its server is away goes on waiting") {
  const Place place(Engine::redis);
  auto holder = place.hold("a");
  // In a session of its own, no shell could continue it, so the kernel would not stop it.
  auto waiter = place.start({"run", "-k", "a", "--", "echo", "ran"}, {.own_session = false});
  REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
  waiter.signal(SIGTSTP);
  REQUIRE(eventually([&] { return is_in_state('T', waiter.pid()); }));
  place.server().kill_hard();
  holder.signal(SIGTERM);
  holder.wait();
  waiter.signal(SIGCONT);
  REQUIRE(eventually([&] { return holds(waiter.err(), "still waiting, trying again"); }));
  place.server().restart();
  CHECK(waiter.wait().out == "ran\n");
}

}  // namespace
}  // namespace dlock::test
