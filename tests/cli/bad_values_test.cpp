#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include "cli/place.hpp"
#include "support/eventually.hpp"
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

BadLine with_key(const std::string& key, std::string says) {
  return {{"run", "-k", key, "--", "echo", "ran"}, std::move(says)};
}

TEST_CASE("bad values: keys that cannot be") {
  const Place place(Engine::local);
  const std::vector<BadLine> lines{
      with_key("", "--key: the value is empty"),
      {{"run", "--key=", "echo", "ran"}, "--key: the value is empty"},
      with_key(std::string(513, 'k'), "longer than 512 bytes"),
      with_key("\xff\xfe", "UTF-8"),
      with_key("two\nlines", "line break"),
      {{"inspect", ""}, "is empty"},
      {{"inspect", "a\n*"}, "line break"},
      {{"acquire", "-t", "5s", "\xff"}, "UTF-8"},
      {{"run", "--", "echo", "ran"}, "missing key"},
      {{"acquire", "-t", "5s"}, "missing key"},
      {{"release", "--force"}, "missing key"},
      {{"renew", "--token", "t"}, "missing key"},
  };
  for (const auto& line : lines) check_refused(place, line, 64);
}

TEST_CASE("bad values: keys that look bad work, and are shown escaped") {
  on_each_engine([](const Place& place) {
    for (const std::string& key : {std::string("with space"),
                                   std::string(" "),
                                   std::string("}{"),
                                   std::string("{"),
                                   std::string("}"),
                                   std::string("%"),
                                   std::string("%41"),
                                   std::string("*"),
                                   std::string("a*b?[c]"),
                                   std::string("\x1b[31mred\x07"),
                                   std::string("tab\t"),
                                   std::string("\\"),
                                   std::string("../../etc/passwd"),
                                   std::string("."),
                                   std::string(".."),
                                   std::string("/"),
                                   std::string("-k"),
                                   std::string("--"),
                                   std::string("\xe2\x80\xae"
                                               "abc"),
                                   std::string("\xf0\x9f\x94\x92"),
                                   std::string(512, 'k'),
                                   std::string("a:f")}) {
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

TEST_CASE("bad values: durations") {
  const Place place(Engine::local);
  for (const char* bad : {"", "5x", "-1", "366d", "\x1b[m", "1h 30m"}) {
    for (const char* flag : {"-w", "-t", "--grace", "--max-hold", "--min-hold"}) {
      check_refused(place, run_with({flag, bad}, ""), 64);
    }
  }
  for (const char* bad : {"99ms", "25h", "0"})
    check_refused(place, run_with({"-t", bad}, "1d00h"), 64);
  check_refused(place, run_with({"--max-hold", "0"}, "--max-hold"), 64);
  check_refused(place, run_with({"--grace", "11s"}, "--grace: \"11s\" is more than a third"), 64);
  check_refused(place, run_with({"-t", "1s", "--grace", "0.5"}, "--grace"), 64);
  for (const char* good : {"10", "0.25", "500ms", "30s", "5m", "1h30m", "1d", "365d", "0"}) {
    CHECK(place.dlock({"run", "-k", "a", "-w", good, "--", "true"}).exit_code == 0);
  }
}

TEST_CASE("bad values: numbers, signals and words") {
  const Place place(Engine::local);
  for (const char* bad : {"-1", "256", "1x"}) {
    check_refused(place, run_with({"-E", bad}, "--conflict-exit-code"), 64);
    check_refused(place, run_with({"--status-fd", bad}, "--status-fd"), 64);
  }
  check_refused(place, run_with({"--limit", "1000001"}, "--limit"), 64);
  check_refused(place, {{"release", "a", "--force", "--fence", "9007199254740992"}, "--fence"}, 64);
  check_refused(place, run_with({"--signal", "SIGNOPE"}, "--signal"), 64);
  check_refused(place, run_with({"--on-lost", "ask"}, "--on-lost"), 64);
  check_refused(place, run_with({"--owner", "a/b"}, "--owner"), 64);
  check_refused(place, run_with({"--owner", "a b"}, "--owner"), 64);
  check_refused(place, run_with({"--owner", std::string(129, 'o')}, "--owner"), 64);
  check_refused(place, run_with({"--label", "\xff"}, "--label"), 64);
  check_refused(place, run_with({"--prefix", "a{b"}, "--prefix"), 64);
  check_refused(place, {{"renew", "a", "--token", "a b"}, "--token"}, 64);
}

TEST_CASE("bad values: flags that do not exist, or not there") {
  const Place place(Engine::local);
  const std::vector<BadLine> lines{
      run_with({"--tll", "5s"}, "unknown flag --tll: did you mean --ttl?"),
      run_with({"-nZ"}, "unknown flag -Z in -nZ"),
      run_with({"--nonblock=1"}, "takes no value"),
      run_with({"-u"}, "dlock release"),
      run_with({"--json"}, "not a flag of run"),
      run_with({"--\x1b[31m"}, "unknown flag"),
      {{"acquire", "a", "-t", "5s", "--json", "--env"}, "exclude each other"},
      {{"acquire", "a"}, "-t"},
      {{"release", "a"}, "DLOCK_TOKEN"},
      {{"renew", "a"}, "DLOCK_TOKEN"},
      {{"release", "a", "--token", "t", "--fence", "1"}, "--force"},
      {{"run", "-k", "a", "--wait"}, "--wait needs a value"},
      {{"run", "-k", "a"}, "missing command"},
      {{"rnu"}, "did you mean run?"},
      {{"frobnicate"}, "unknown command"},
      {{"-k", "a", "run"}, "before the command"},
      {{"inspect", "--wach"}, "unknown flag --wach"},
  };
  for (const auto& line : lines) check_refused(place, line, 64);
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
      {{"acquire", "a", "--attach", "1", "-t", "25h"}, "1d00h"},
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

TEST_CASE("bad values: server URLs") {
  const Place place(Engine::local);
  const std::string secret = "hunter2";
  for (const std::string& bad :
       {std::string("http://host"), std::string("host:6379"), std::string("redis://host:0"),
        std::string("unix://rel/sock"), "unix:///" + std::string(120, 's'),
        std::string("local:relative"), std::string("redis+sentinel://a,b"),
        "redis://user:" + secret + "@", "http://:" + secret + "@h",
        "redis://user:" + secret + "@host:99999", std::string("redis://user@host"),
        std::string("redis://host/\x1b[31m")}) {
    CAPTURE(bad);
    const auto flag = place.dlock({"run", "-k", "a", "--server", bad, "--", "echo", "ran"});
    check_message(flag, 64);
    CHECK(flag.err.starts_with("dlock: --server: "));
    CHECK(!holds(flag.err, secret));
    const auto variable = place.dlock({"inspect"}, {.env = {{"DLOCK_SERVER", bad}}});
    CHECK(variable.exit_code == 64);
    CHECK(variable.err.starts_with("dlock: DLOCK_SERVER: "));
  }
  check_refused(place,
                {{"inspect", "--server", "redis://a", "--server", "redis://b"}, "have no majority"},
                64);
}

TEST_CASE("help: on stdout with 0 where it is asked for, on stderr with 64 where it is not") {
  const auto alone = dlock({});
  CHECK(alone.exit_code == 64);
  CHECK(alone.out == "");
  CHECK(holds(alone.err, "Usage: dlock COMMAND"));
  CHECK(dlock({"--help"}).out == alone.err);
  for (const char* command : {"run", "acquire", "renew", "release", "inspect"}) {
    for (const char* flag : {"-h", "--help"}) {
      const auto help = dlock({command, flag});
      check_quiet(help);
      CHECK(help.out.starts_with("Usage: dlock " + std::string(command)));
    }
    CHECK(dlock({command, "-V"}).out == dlock({"--version"}).out);
  }
}

}  // namespace
}  // namespace dlock::test
