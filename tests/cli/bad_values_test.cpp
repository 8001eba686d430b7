#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include "cli/place.hpp"
#include "support/files.hpp"
#include "support/privileges.hpp"

namespace dlock::test {
namespace {

struct BadLine {
  std::vector<std::string> words;
  std::string says;  ///< part of the one error line
};

void check_refused(const Place& place, const BadLine& line, int code) {
  std::string shown;
  for (const auto& word : line.words) shown += word + " ";
  CAPTURE(shown);
  check_message(place.dlock(line.words), code, line.says);
}

BadLine run_with(std::vector<std::string> flags, std::string says) {
  flags.insert(flags.begin(), {"run", "-k", "a"});
  flags.insert(flags.end(), {"--", "echo", "ran"});
  return {std::move(flags), std::move(says)};
}

TEST_CASE("bad values: a command line that cannot be meant is one line, 64, and nothing runs") {
  const Place place(Engine::local);
  const std::vector<BadLine> lines{
      run_with({"-k", ""}, "--key: the value is empty"),
      run_with({"-k", "two\nlines"}, "line break"),
      {{"run", "--", "echo", "ran"}, "missing key"},
      {{"run", "-k", "a"}, "missing command"},
      run_with({"-w", "5x"}, "--wait: invalid duration \"5x\""),
      run_with({"-t", "25h"}, "1d00h"),
      run_with({"--grace", "11s"}, "--grace: \"11s\" is more than a third"),
      run_with({"-E", "256"}, "--conflict-exit-code"),
      run_with({"--limit", "0"}, "--limit"),
      run_with({"--owner", "a/b"}, "--owner"),
      run_with({"--tll", "5s"}, "unknown flag --tll: did you mean --ttl?"),
      run_with({"--json"}, "not a flag of run"),
      run_with({"--\x1b[31m"}, "unknown flag"),
      {{"acquire", "a", "-t", "5s", "--json", "--env"}, "exclude each other"},
      {{"release", "a", "--force", "--fence", "9007199254740992"}, "--fence"},
      {{"renew", "a"}, "DLOCK_TOKEN"},
      {{"rnu"}, "did you mean run?"},
      {{"-k", "a", "run"}, "before the command"},
      {{"inspect", "--server", "redis://a", "--server", "redis://b"}, "have no majority"},
  };
  for (const auto& line : lines) check_refused(place, line, 64);
}

TEST_CASE("bad values: keys that look bad work, and are shown escaped") {
  on_each_engine([](const Place& place) {
    for (const std::string key : {"a*b?[c]", "\x1b[31mred\x07", "../../etc/passwd", "--",
                                  "\xe2\x80\xae"
                                  "abc"}) {
      CAPTURE(key);
      auto holder = place.hold(key);
      CHECK(place.state(key)["key"] == key);
      const auto refused = place.dlock({"run", "-n", "-k", key, "--", "true"});
      check_message(refused, 75);
      CHECK(!holds(refused.err, "\xe2\x80\xae"));
      const auto table = place.dlock({"inspect"}).out;
      CHECK(count_lines(table) == 2);
      CHECK(!holds(table, "\x1b"));
      holder.signal(SIGTERM);
      holder.wait();
    }
  });
}

TEST_CASE("bad values: processes to attach to") {
  const Place place(Engine::local);
  for (const char* bad : {"x", "0", "-1", "1.5", "0x1", "4294967297", " 1", "1 "}) {
    check_refused(place, {{"acquire", "a", "--attach", bad}, "--attach: "}, 64);
  }
  Process ended({"true"});
  REQUIRE(eventually([&] { return !ended.running(); }));
  const auto pid = std::to_string(ended.pid());
  const std::vector<BadLine> lines{
      {{"acquire", "a", "--attach"}, "--attach needs a value: --attach PID"},
      {{"acquire", "a", "--attach="}, "--attach: the value is empty"},
      {{"acquire", "a", "--attach", "2147483647"}, "--attach: there is no process 2147483647"},
      {{"acquire", "a", "--attach", pid}, "there is no process " + pid},
      {{"acquire", "a", "-t", "5s", "--signal", "TERM"}, "--signal goes with --attach"},
      {{"acquire", "a", "--attach", "1", "--signal", "NOPE"}, "--signal: invalid signal \"NOPE\""},
      {{"acquire", "a", "--attach", "1", "-t", "32d"}, "31d00h"},
      {{"renew", "a", "--token", "t", "--attach", "1"}, "not a flag of renew, but of acquire"},
      {{"run", "-k", "a", "--attach", "1", "true"}, "not a flag of run, but of acquire"},
  };
  for (const auto& line : lines) check_refused(place, line, 64);
  const auto itself = place.shell(R"(exec "$D" acquire -k a --attach $$)");
  check_message(itself, 64, "is dlock itself");
  CHECK(place.is_free("a"));
}

TEST_CASE("bad values: processes to attach to that are not the user's") {
  if (geteuid() != 0) return;
  const Place place(Engine::local);
  // This source tree may be closed to other users.
  const OrdinaryUser user;
  const ProcessOptions options{.env = {{"HOME", "/nowhere"}}, .before_exec = [] {
                                 [[maybe_unused]] const int changed = setuid(nobody);
                               }};
  check_message(Process({user.own_copy(dlock_path()), "acquire", "a", "--attach", "1", "--server",
                         "local:/tmp"},
                        clean(options))
                    .wait(),
                64, "--attach: process 1 is another user's");
}

TEST_CASE("bad values: a server URL is named by where it stood, and no password is shown") {
  const Place place(Engine::local);
  for (const std::string bad :
       {"redi://host", "redis://host/x", "redis://user:hunter2@", "redis://:hunter2@host:99999"}) {
    CAPTURE(bad);
    const auto flag = place.dlock({"run", "-k", "a", "--server", bad, "--", "echo", "ran"});
    check_message(flag, 64, "dlock: --server: ");
    CHECK(!holds(flag.err, "hunter2"));
    check_says(place.dlock({"inspect"}, {.env = {{"DLOCK_SERVER", bad}}}), 64,
               "dlock: DLOCK_SERVER: ");
  }
}

TEST_CASE("help: on stderr with 64 where it is not asked for") {
  const auto alone = dlock({});
  check_says(alone, 64, "Usage: dlock COMMAND");
  CHECK(alone.out == "");
  CHECK(dlock({"--help"}).out == alone.err);
  CHECK(dlock({"run", "-V"}).out == dlock({"--version"}).out);
}

}  // namespace
}  // namespace dlock::test
