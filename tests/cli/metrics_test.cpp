#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/clock.hpp"
#include "cli/place.hpp"
#include "support/exposition.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

using Labels = Exposition::Labels;

const char* const success = "dlock_last_success_timestamp_seconds";
const char* const last_run = "dlock_last_run_timestamp_seconds";

Labels of(const std::string& key) { return {{"key", key}}; }

Exposition written(const Place& place) {
  return parse_exposition(read_file(place.dir() / "job.prom"));
}

/// Runs `dlock run --metrics job.prom ARGUMENTS`, and parses the file.
Exposition metrics_of(const Place& place, const std::string& arguments, int exit_code) {
  const auto result = place.shell(R"("$D" run -q --metrics job.prom )" + arguments);
  CHECK(result.exit_code == exit_code);
  return written(place);
}

/// The outcome of the last run: the only one with the value 1.
std::string outcome_of(const Exposition& found, const std::string& key) {
  std::string outcome;
  for (const auto& [labels, value] : found.metrics.at("dlock_last_run_outcome").samples) {
    if (labels.at("key") != key || value == 0) continue;
    outcome += (outcome.empty() ? "" : " and ") + labels.at("outcome");
  }
  return outcome;
}

double wall_seconds() {
  return std::chrono::duration<double>(wall_now().time_since_epoch()).count();
}

TEST_CASE("metrics: a run that succeeds leaves its outcome, times and fencing token") {
  on_each_engine([](const Place& place) {
    const double begin = wall_seconds();
    const auto found = metrics_of(place, "-k a -- sh -c 'sleep 0.05; echo $DLOCK_FENCE >fence'", 0);
    CHECK(outcome_of(found, "a") == "exited");
    CHECK(found.at("dlock_last_run_exit_code", of("a")) == 0);
    CHECK(found.at(last_run, of("a")) >= begin);
    CHECK(found.at(last_run, of("a")) <= wall_seconds());
    CHECK(found.at(success, of("a")) == found.at(last_run, of("a")));
    CHECK(found.at("dlock_last_run_held_seconds", of("a")) >= 0.05);
    CHECK(found.at("dlock_last_run_held_seconds", of("a")) < wall_seconds() - begin);
    CHECK(found.at("dlock_last_run_waited_seconds", of("a")) >= 0);
    CHECK(found.at("dlock_last_fence", of("a")) == std::stod(read_file(place.dir() / "fence")));
    CHECK(found.at("dlock_losses_total", of("a")) == 0);
  });
}

TEST_CASE("metrics: a run that fails keeps the time of the last success and the fencing token") {
  const Place place(Engine::local);
  const auto never = metrics_of(place, "-k a -- false", 1);
  CHECK(never.at(success, of("a")) == 0);
  const auto good = metrics_of(place, "-k a -- true", 0);
  const auto failed = metrics_of(place, "-k a -- sh -c 'exit 3'", 3);
  CHECK(outcome_of(failed, "a") == "exited");
  CHECK(failed.at("dlock_last_run_exit_code", of("a")) == 3);
  CHECK(failed.at(success, of("a")) == good.at(success, of("a")));
  CHECK(failed.at(last_run, of("a")) >= good.at(last_run, of("a")));
  CHECK(failed.at("dlock_last_fence", of("a")) > good.at("dlock_last_fence", of("a")));

  const auto not_started = metrics_of(place, "-k a -- no-such-command", 127);
  CHECK(outcome_of(not_started, "a") == "not-started");
  const auto max_hold = metrics_of(place, "-k a --max-hold 0.1 -- sleep 60", 124);
  CHECK(outcome_of(max_hold, "a") == "max-hold");
  const auto signalled = metrics_of(place, "-k a -- sh -c 'kill -USR1 $$'", 138);
  CHECK(outcome_of(signalled, "a") == "signalled");
  const auto error = metrics_of(place, "-k a --server local:/no/such/place -- true", 71);
  CHECK(outcome_of(error, "a") == "error");
  const auto unusable = metrics_of(place, "-k a -k a -t nonsense -- true", 64);
  CHECK(outcome_of(unusable, "a") == "error");
  CHECK(unusable.at("dlock_last_run_exit_code", of("a")) == 64);

  const auto holder = place.hold("a");
  const auto refused = metrics_of(place, "-k a -w 0.2 -E 0 -- true", 0);
  CHECK(outcome_of(refused, "a") == "not-acquired");
  CHECK(refused.at("dlock_last_run_waited_seconds", of("a")) >= 0.2);
  CHECK(refused.at("dlock_last_run_held_seconds", of("a")) == 0);
  CHECK(refused.at("dlock_last_fence", of("a")) == signalled.at("dlock_last_fence", of("a")));
  CHECK(refused.at(success, of("a")) == good.at(success, of("a")));
}

TEST_CASE("metrics: a skip behind a job that runs is another than one in the cooldown of a job") {
  on_each_engine([](const Place& place) {
    const auto since_success = [&](const std::string& result) {
      return written(place).at("dlock_runs_since_success", {{"key", "a"}, {"result", result}});
    };
    auto holder = place.hold("a");
    for (const int skips : {1, 2}) {
      metrics_of(place, "-n -k a -- true", 75);
      CHECK(since_success("skipped") == skips);
    }
    holder.signal(SIGTERM);
    holder.wait();
    CHECK(place.shell(R"("$D" run -k a --min-hold 10m -- true)").exit_code == 0);
    metrics_of(place, "-w 0.1 -k a -- true", 75);
    CHECK(since_success("cooldown") == 1);
    CHECK(since_success("skipped") == 2);
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    metrics_of(place, "-k a -- true", 0);
    CHECK(since_success("cooldown") + since_success("skipped") == 0);
  });
}

TEST_CASE("metrics: a run without a key leaves the file of the run before as it was") {
  const Place place(Engine::local);
  write_file(place.dir() / "job.prom", "before\n");
  const auto result = place.shell(R"("$D" run --metrics job.prom -- true)");
  check_message(result, 64);
  CHECK(read_file(place.dir() / "job.prom") == "before\n");
  CHECK(place.shell(R"("$D" run --metrics new.prom -- true)").exit_code == 64);
  CHECK(place.shell("ls -A").out == "job.prom\n");
}

TEST_CASE("metrics: losses are counted from run to run") {
  on_each_engine([](const Place& place) {
    for (int count = 1; count <= 2; ++count) {
      auto victim = place.hold("a", {"-q", "--metrics", place.dir() / "job.prom", "-t", "6s"});
      CHECK(place.dlock({"release", "--force", "a"}).exit_code == 0);
      CHECK(victim.wait().exit_code == 79);
      const auto found = written(place);
      CHECK(outcome_of(found, "a") == "lost");
      CHECK(found.at("dlock_losses_total", of("a")) == count);
    }
    const auto good = metrics_of(place, "-k a -- true", 0);
    CHECK(outcome_of(good, "a") == "exited");
    CHECK(good.at("dlock_losses_total", of("a")) == 2);
  });
}

TEST_CASE("metrics: several keys have samples of their own, whatever is in their names") {
  on_each_engine([](const Place& place) {
    const std::string odd = "a\"b\\c\\n{x=1},\t# ü";
    const auto first = place.dlock(
        {"run", "--metrics", place.dir() / "job.prom", "-k", odd, "-k", "plain", "--", "false"});
    CHECK(first.exit_code == 1);
    const auto again = place.dlock(
        {"run", "--metrics", place.dir() / "job.prom", "-k", odd, "-k", "plain", "--", "true"});
    CHECK(again.exit_code == 0);
    const auto found = written(place);
    for (const std::string& key : {odd, std::string("plain")}) {
      CHECK(outcome_of(found, key) == "exited");
      CHECK(found.at(success, of(key)) == found.at(last_run, of(key)));
    }
    CHECK(found.metrics.at("dlock_last_fence").samples.size() == 2);
  });
}

TEST_CASE("metrics: only numbers are carried on from the file of the run before") {
  const Place place(Engine::local);
  for (const char* bad : {"-1", "NaN", "1e9", "0x10", "1.", ".5", "", "7 8", "1\" } 2",
                          "123456789012345678901234567890", "12\r"}) {
    CAPTURE(bad);
    write_file(place.dir() / "job.prom", std::string("x") + success + "{key=\"a\"} 7\n" + success +
                                             "{key=\"a\"} " + bad +
                                             "\ndlock_losses_total{key=\"a\"} " + bad + "\n");
    const auto found = metrics_of(place, "-k a -- false", 1);
    CHECK(found.at(success, of("a")) == 0);
    CHECK(found.at("dlock_losses_total", of("a")) == 0);
  }
  write_file(place.dir() / "job.prom", std::string(success) + "{key=\"a\"} 17.250");
  CHECK(metrics_of(place, "-k a -- false", 1).at(success, of("a")) == 17.25);
  write_file(place.dir() / "job.prom", std::string(3 << 20, '\0'));
  CHECK(metrics_of(place, "-k a -- false", 1).at(success, of("a")) == 0);
}

TEST_CASE("metrics: everybody may read the file, and nothing is left beside it") {
  const Place place(Engine::local);
  const auto result = place.shell(R"(umask 077; mkdir -m 755 m; "$D" run --metrics m/job.prom \
      -k a -- true; "$D" run --metrics m/job.prom -k a -- true; ls -A m; stat -c %a m/job.prom)");
  CHECK(result.out == "job.prom\n644\n");
  CHECK(result.err == "");
}

TEST_CASE("metrics: a file that cannot be written is one warning, and the job is as without") {
  const Place place(Engine::local);
  std::filesystem::create_directory(place.dir() / "folder");
  const auto shown = [&](const std::string& file, const std::string& before = "") {
    CAPTURE(file);
    const auto result = place.shell(before + R"("$D" run -q --metrics )" + file +
                                    R"( -k a -- sh -c 'echo did; exit 4')");
    CHECK(result.exit_code == 4);
    CHECK(result.out == "did\n");
    CHECK(is_one_message(result.err));
    CHECK(holds(result.err, "--metrics " + file));
    CHECK(place.is_free("a"));
    return result.err;
  };
  CHECK(holds(shown("no/such/folder/job.prom"), "No such file"));
  CHECK(holds(shown("folder"), "not a regular file"));
  CHECK(holds(shown("/proc/job.prom"), "/proc/job.prom: "));
  CHECK(holds(shown("pipe", "mkfifo pipe; "), "not a regular file"));
  CHECK(holds(shown("link", "ln -s /dev/null link; "), "not a regular file"));
  CHECK(std::filesystem::is_fifo(std::filesystem::status(place.dir() / "pipe")));
  CHECK(place.shell("ls -A | sort").out == "folder\nlink\npipe\n");
}

TEST_CASE("metrics: a disk that takes no more leaves the file of the run before as it was") {
  const Place place(Engine::redis);
  write_file(place.dir() / "job.prom", "before\n");
  const auto limited = [&](const std::string& arguments) {
    // The limit applies to files, but not to pipes.
    return place.shell(R"((ulimit -f 0; "$D" run -q --metrics job.prom )" + arguments +
                       "; echo $?) 2>&1 | cat");
  };
  const std::string warning = "dlock: warning: cannot write --metrics job.prom: File too large\n";
  CHECK(limited("-k a -- sh -c 'exit 4'").out == warning + "4\n");
  const auto unusable = limited("-k a -t bad -- true");
  CHECK(unusable.out.starts_with(warning + "dlock: --ttl: "));
  CHECK(unusable.out.ends_with("\n64\n"));
  CHECK(read_file(place.dir() / "job.prom") == "before\n");
  CHECK(place.shell("ls -A").out == "job.prom\n");
}

TEST_CASE("metrics: two jobs with one file never leave half a file") {
  const Place place(Engine::local);
  std::vector<Process> jobs;
  for (const char* key : {"a", "b"}) {
    jobs.push_back(
        place.start_shell(std::string("until [ -e stop ]; do \"$D\" run --metrics job.prom -k ") +
                          key + " -- true; echo >>" + key + "; done"));
  }
  const auto path = place.dir() / "job.prom";
  REQUIRE(wait_for_file(path));
  const auto runs = [&](const char* key) {
    const std::string count = place.dir() / key;
    return std::filesystem::exists(count) ? count_lines(read_file(count)) : std::size_t{0};
  };
  int reads = 0;
  const bool read_enough = eventually([&] {
    CHECK(written(place).metrics.size() == 9);
    return ++reads >= 100 && runs("a") >= 10 && runs("b") >= 10;
  });
  CHECK(read_enough);
  write_file(place.dir() / "stop", "");
  for (Process& job : jobs) CHECK(job.wait().err == "");
  CHECK(place.shell("ls -A | sort").out == "a\nb\njob.prom\nstop\n");
}

TEST_CASE("metrics: inspect shows holders, waiters, their ages, leases and kinds") {
  on_each_engine([](const Place& place) {
    CHECK(place.dlock({"inspect", "--metrics"}).out == "");
    const auto token = place.acquired("a\"b\\");
    const auto holder = place.hold("x");
    const auto reader = place.hold("shared", {"-s"});
    const auto one_of = place.hold("some", {"--limit", "3"});
    CHECK(place.dlock({"run", "-k", "cool", "--min-hold", "10m", "--", "true"}).exit_code == 0);
    const auto waiter = place.start({"run", "-q", "-k", "x", "--", "true"});
    REQUIRE(eventually([&] { return place.waiters("x") == 1; }));
    CHECK(place.dlock({"latch", "open", "-k", "x", "--count", "3"}).exit_code == 0);

    const auto result = place.dlock({"inspect", "--metrics"});
    CHECK(result.exit_code == 0);
    const auto found = parse_exposition(result.out);
    CHECK(found.at("dlock_holders", of("x")) == 1);
    CHECK(found.at("dlock_waiters", of("x")) == 1);
    CHECK(found.at("dlock_waiters", of("a\"b\\")) == 0);
    CHECK(found.at("dlock_oldest_holder_seconds", of("x")) >=
          found.at("dlock_oldest_waiter_seconds", of("x")));
    CHECK(!found.has("dlock_oldest_waiter_seconds", of("shared")));
    CHECK(found.at("dlock_lease_left_seconds", of("a\"b\\")) <= 60);
    CHECK(found.at("dlock_lease_left_seconds", of("a\"b\\")) > 0);
    CHECK(found.has("dlock_lease_left_seconds", of("x")) == !place.is_local());
    const auto fence = place.state("x")["holders"][0]["fence"].get<double>();
    CHECK(found.at("dlock_fence", of("x")) == fence);
    for (const auto& [key, kind] :
         {std::pair("x", "exclusive"), std::pair("shared", "shared"),
          std::pair("some", "semaphore"), std::pair("cool", "cooldown")}) {
      CHECK(found.at("dlock_kind", {{"key", key}, {"kind", kind}}) == 1);
    }
    CHECK(found.metrics.at("dlock_kind").samples.size() == 5);
    CHECK(found.at("dlock_latch_expected", of("x")) == 3);
    CHECK(found.at("dlock_latch_arrived", of("x")) == 0);

    const auto some = parse_exposition(place.dlock({"inspect", "--metrics", "x", "s*"}).out);
    CHECK(some.metrics.at("dlock_holders").samples.size() == 3);
    const auto free = parse_exposition(place.dlock({"inspect", "--metrics", "free"}).out);
    CHECK(free.at("dlock_holders", of("free")) == 0);
    CHECK(free.at("dlock_waiters", of("free")) == 0);
    CHECK(free.metrics.size() == 2);
    CHECK(place.dlock({"inspect", "--metrics", "-q", "free"}).exit_code == 1);
    CHECK(place.dlock({"inspect", "--metrics", "-q", "x"}).out == "");
  });
}

TEST_CASE("metrics: the flag is one of run with a file and one of inspect without") {
  const Place place(Engine::local);
  const auto fault = [&](const std::vector<std::string>& arguments) {
    const auto result = place.dlock(arguments);
    CHECK(result.exit_code == 64);
    CHECK(is_one_message(result.err));
    return result.err;
  };
  CHECK(holds(fault({"inspect", "--metrics", "--json"}), "exclude each other"));
  CHECK(holds(fault({"inspect", "--metrics", "--watch"}), "exclude each other"));
  CHECK(holds(fault({"inspect", "--metrics=x"}), "takes no value"));
  CHECK(holds(fault({"run", "--metrics"}), "needs a value"));
  CHECK(holds(fault({"run", "--metrics=", "-k", "a", "--", "true"}), "empty"));
  CHECK(holds(fault({"acquire", "--metrics", "x", "-k", "a"}), "but of run, inspect"));
  CHECK(place.dlock({"inspect", "--metrics", "--server", "unix:///no/such"}).exit_code == 69);
}

}  // namespace
}  // namespace dlock::test
