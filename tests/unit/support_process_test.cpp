#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/error.hpp"
#include "support/dlock_binary.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

TEST_CASE("a temporary directory is short, ours, and gone with its contents") {
  std::string path;
  {
    const TempDir dir;
    path = dir.path();
    CHECK(path.size() < 80);
    write_file(dir / "a", "text");
    CHECK(read_file(dir / "a") == "text");
  }
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("eventually waits for a condition and gives up in time") {
  int asked = 0;
  CHECK(eventually([&] { return ++asked == 3; }));
  CHECK(asked == 3);
  CHECK_FALSE(eventually([] { return false; }, milliseconds(10)));
}

TEST_CASE("a run process hands back its exit code, both outputs and its signal") {
  const auto exited = run({"sh", "-c", "echo out; echo err >&2; exit 7"});
  CHECK(exited.exit_code == 7);
  CHECK(exited.out == "out\n");
  CHECK(exited.err == "err\n");
  CHECK(exited.duration.count() > 0);
  const auto killed = run({"sh", "-c", "kill -9 $$"});
  CHECK(killed.signal == SIGKILL);
  CHECK(killed.exit_code == -1);
}

TEST_CASE("a process gets the stdin, directory, variables and hook it was started with") {
  const TempDir dir;
  ProcessOptions options;
  options.cwd = dir.path();
  options.input = "given";
  options.env = {{"A_VARIABLE", "set"}};
  options.unset_prefixes = {"PW"};
  options.merge = true;
  options.before_exec = [] { umask(0123); };
  const auto result = run({"sh", "-c", "cat; echo \" $A_VARIABLE\" >&2; umask; pwd -P"}, options);
  CHECK(result.out == "given set\n0123\n" + dir.path() + "\n");
}

TEST_CASE("output larger than any pipe does not block the process") {
  const auto result = run({"sh", "-c", "yes | head -c 3000000"});
  CHECK(count_lines(result.out) == 1'500'000);
}

TEST_CASE("a program that is not there is an error at the start") {
  CHECK_THROWS_AS(Process({"/nowhere/at-all"}), Error);
}

TEST_CASE("waiting for a process that does not end says what it wrote") {
  Process stuck({"sh", "-c", "echo here; exec sleep 1000"});
  CHECK(eventually([&] { return stuck.out() == "here\n"; }));
  CHECK_THROWS_WITH_AS(stuck.wait(milliseconds(5)), doctest::Contains("here"), Error);
  CHECK(stuck.running());
  stuck.signal(SIGTERM);
  CHECK(stuck.wait().signal == SIGTERM);
  CHECK_FALSE(stuck.running());
}

TEST_CASE("a process that goes out of scope takes what it left in the background with it") {
  pid_t left = 0;
  {
    Process shell({"bash", "-c", "set -m; sleep 1000 & echo $!; (sleep 1000 &)"});
    left = static_cast<pid_t>(std::stol(shell.wait().out));
    CHECK(is_alive(left));
  }
  CHECK(eventually([&] { return !is_alive(left); }));
}

TEST_CASE("several threads may start processes at the same time") {
  std::vector<std::thread> threads;
  std::vector<std::string> seen(4);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&seen, i] {
      for (int round = 0; round < 5; ++round) seen[i] += run({"echo", std::to_string(i)}).out;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(seen[3] == "3\n3\n3\n3\n3\n");
}

TEST_CASE("the clean environment holds nothing that could configure dlock") {
  setenv("DLOCK_SERVER", "redis://elsewhere", 1);
  setenv("REDISCLI_AUTH", "secret", 1);
  ProcessOptions options;
  options.env = {{"DLOCK_TTL", "5s"}};
  const auto result =
      run({"sh", "-c", "env | grep -E '^(DLOCK_|REDISCLI)'; ls -A ~"}, clean(options));
  unsetenv("DLOCK_SERVER");
  unsetenv("REDISCLI_AUTH");
  CHECK(result.out == "DLOCK_TTL=5s\n");
}

}  // namespace dlock::test
