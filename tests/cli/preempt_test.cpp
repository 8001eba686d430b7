// --preempt, and what the next holder learns of a holder that was evicted.

#include <doctest/doctest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "cli/place.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

/// A `run` on a whose command has the directory `inside` until it has ended, which takes a while
/// after it is asked to.
Process slow_to_end(const Place& place) {
  return place.begun_shell(
      R"(exec "$D" run -k a -t 9s -- sh -c \
         'trap "sleep 0.3; rmdir inside; exit 0" TERM; mkdir inside; echo in; sleep 60 & wait')");
}

const std::string alone = "mkdir inside && echo alone";

}  // namespace

TEST_CASE("preempt: the holder's COMMAND ends, then the waiter's runs, and never both") {
  on_each_engine([](const Place& place) {
    auto holder = slow_to_end(place);
    const auto next =
        place.shell(R"("$D" run -k a --preempt --label 'build 8' -- sh -c ')" + alone + "'");
    CHECK(next.exit_code == 0);
    CHECK(next.out == "alone\n");
    CHECK(holds(next.err, "dlock: asked "));
    CHECK(holds(next.err, " pid " + std::to_string(holder.pid()) + " "));
    check_says(holder.wait(), 0, "dlock: a: asked to stop by ");
    CHECK(holds(holder.err(), ": --preempt of build 8; sent COMMAND signal TERM, "));
  });
}

TEST_CASE("preempt: acquire asks the holder as well, and gets the lock after it") {
  on_each_engine([](const Place& place) {
    auto holder = slow_to_end(place);
    const auto next = place.shell(R"(T=$("$D" acquire -k a -t 1m --preempt) && )" + alone +
                                  R"( && "$D" release a --token $T)");
    CHECK(next.out == "alone\n");
    CHECK(next.exit_code == 0);
    check_says(holder.wait(), 0, ": --preempt; sent COMMAND signal TERM, ");
  });
}

TEST_CASE("preempt: with --latest the running job is stopped, and only the newest follows") {
  on_each_engine([](const Place& place) {
    auto holder = place.begun_shell(
        R"(exec "$D" run -k a -t 9s -- sh -c \
           'trap "" TERM; echo in; until [ -e end ]; do sleep 0.05; done')");
    const auto queue_up = [&](const std::string& name) {
      return place.start({"run", "-k", "a", "--preempt", "--latest", "--", "echo", name});
    };
    auto older = queue_up("older");
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    auto newest = queue_up("newest");
    const auto superseded = older.wait();
    check_says(superseded, 75, "superseded by ");
    CHECK(superseded.out == "");
    CHECK(eventually([&] { return holds(holder.err(), "; sent COMMAND signal TERM, "); }));
    CHECK(newest.running());
    write_file(place.dir() / "end", "");
    CHECK(holder.wait().exit_code == 0);
    check_ran(newest.wait(), "newest\n");
  });
}

TEST_CASE("preempt: without a wait it is a usage error, and on a free key it asks nobody") {
  on_each_engine([](const Place& place) {
    for (const std::vector<std::string>& no_wait :
         {std::vector<std::string>{"-n"}, std::vector<std::string>{"-w", "0"}}) {
      auto words = std::vector<std::string>{"run", "-k", "a", "--preempt"};
      words.insert(words.end(), no_wait.begin(), no_wait.end());
      words.insert(words.end(), {"--", "true"});
      check_message(place.dlock(words), 64, "--preempt goes with waiting");
    }
    check_quiet(place.dlock({"run", "-k", "a", "--preempt", "--", "true"}));
  });
}

TEST_CASE("evicted: the waiter that follows is warned that the command may still run") {
  on_each_engine([](const Place& place) {
    auto victim = place.hold("a", {"-t", "30s"});
    const std::string hook = "echo \"$DLOCK_EVENT: $DLOCK_REASON\" >>events";
    auto next = patient_start(
        [&] {
          return place.start(
              {"run", "-k", "a", "-t", "9s", "--hook", hook, "--", "sh", "-c", "exec sleep 60"},
              {.cwd = place.dir().path()});
        },
        [&] { return place.waiters("a") == 1; }, "it did not wait");
    // One that runs may have ended before the waiter looks, and then there is nothing to warn of.
    victim.signal(SIGSTOP);
    CHECK(place.dlock({"release", "--force", "--reason", "stuck", "a"}).exit_code == 0);
    CHECK(eventually([&] { return holds(next.err(), "it may still run for "); }));
    victim.signal(SIGCONT);
    CHECK(holds(next.err(), "the holder of a before this was evicted by "));
    CHECK(holds(next.err(), ": stuck; it may still run for "));
    const auto events = [&] { return read_file(place.dir() / "events"); };
    CHECK(eventually([&] { return holds(events(), "\npredecessor-evicted: "); }));
    CHECK(holds(events(), "acquired: "));
    next.signal(SIGTERM);
    next.wait();
    CHECK(holds(events(), "predecessor-evicted: the holder of a before this was evicted by "));
    CHECK(victim.wait().exit_code == 79);
  });
}

}  // namespace dlock::test
