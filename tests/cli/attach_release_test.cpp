#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdio>
#include <string>

#include "base/clock.hpp"
#include "cli/line.hpp"
#include "cli/place.hpp"
#include "support/files.hpp"
#include "support/privileges.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

/// A script that obeys its test: it writes "told" on SIGTERM, runs what a test writes to the file
/// `do`, and ends when the file `end` exists.
const std::string obedient = R"sh(
    until [ -e end ]; do
      if [ -e do ]; then mv do doing; . ./doing; echo "did $?"; fi
      sleep 0.01
    done)sh";
const std::string say_told = "trap 'echo told' TERM";

/// Makes `script` run some commands, and waits until it has.
std::string have_done(const Place& place, const Process& script, const std::string& what) {
  const auto before = script.out().size();
  write_file(place.dir() / "do.new", what);
  rename((place.dir() / "do.new").c_str(), (place.dir() / "do").c_str());
  const bool done = eventually([&] { return holds(script.out().substr(before), "did "); });
  return done ? script.out().substr(before) : "not done: " + script.out();
}

/// The CPU time of a process, in hundredths of a second.
long cpu_ticks(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  long user = 0;
  long system = 0;
  std::sscanf(stat.c_str() + stat.rfind(')'),
              ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system);
  return user + system;
}

TEST_CASE("attach: release from the script ends the keeper, and is no loss") {
  on_each_engine([](const Place& place) {
    const auto result = place.shell(R"(
        trap 'echo told' TERM
        for i in 1 2 3 4 5 6 7 8 9 10; do
          T=$("$D" acquire -k a --attach $$) || echo "not had"
          "$D" renew -k a --token "$T" || echo "not renewed"
          DLOCK_TOKEN=$T "$D" release -k a || echo "not released"
          "$D" inspect -q a && echo "still held"
        done
        "$D" release -k a --token "$T"
        echo $?)");
    CHECK(result.out == "79\n");
    CHECK(is_one_message(result.err));
    CHECK(holds(result.err, "is not held by this token"));
  });
}

/// Whether the attach daemon has gone, with its files, when a release returns; a release does not
/// wait for it forever.
bool has_gone_with_all_it_had() {
  const Place place(Engine::local);
  const std::string dir = place.url().substr(std::string("local:").size());
  const auto result = place.shell(R"(
      T=$("$D" acquire -k a -k b --attach $$)
      ls -A )" + dir + R"( | grep -c '^[.]wait'
      "$D" release -k a --token "$T"
      "$D" inspect -q b && echo "b stays"
      "$D" release -k b --token "$T"
      ls -A )" + dir);
  CHECK(result.err == "");
  CHECK(result.out.starts_with("1\nb stays\n"));
  return result.out == "1\nb stays\na.dlock\nb.dlock\n";
}

TEST_CASE("attach: when release returns, the keeper has gone with all it had") {
  CHECK(in_one_of(3, has_gone_with_all_it_had));
}

/// The same for a daemon that needs 0.3 s to remove its files.
bool is_waited_for_though_slow() {
  const Place place(Engine::local);
  const std::string dir = place.url().substr(std::string("local:").size());
  // Without permission to trace, nothing is slowed down.
  const auto result = place.shell(R"(
      slow='strace -D -f -qq -o /dev/null -e trace=unlinkat -e inject=unlinkat:delay_enter=300000'
      $slow true 2>/dev/null || slow=
      $slow "$D" acquire -k a --attach $$ >)" +
                                  dir + R"(/token
      T=$(cat )" + dir + R"(/token)
      "$D" release -k a --token "$T"
      rm )" + dir + R"(/token
      ls -A )" + dir);
  CHECK(result.err == "");
  return result.out == "a.dlock\n";
}

TEST_CASE("attach: release waits also for a keeper that is slow to take away what it had") {
  CHECK(in_one_of(3, is_waited_for_though_slow));
}

TEST_CASE("attach: of two locks one is released, and the other is kept and its loss told") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -k b -t 15s", obedient, say_told);
    CHECK(have_done(place, script, R"("$D" release -k a --token "$T")") == "did 0\n");
    CHECK(place.is_free("a"));
    CHECK(!place.is_free("b"));
    CHECK(keepers_of(script.pid()).size() == 1);
    CHECK(place.dlock({"release", "-q", "--force", "b"}).exit_code == 0);
    CHECK(eventually([&] { return script.out() == "in\ndid 0\ntold\n"; }));
    CHECK(keepers_leave(script.pid()));
  });
}

TEST_CASE("attach: one release of all keys at once") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -k b -k c", obedient, say_told);
    CHECK(have_done(place, script, R"("$D" release a b c --token "$T")") == "did 0\n");
    CHECK(keepers_leave(script.pid()));
    CHECK(script.out() == "in\ndid 0\n");
  });
}

TEST_CASE("attach: a release that the server does not answer is no loss, whenever it is done") {
  const Place place(Engine::redis);
  auto script = attached(place, "-k a -t 15s", obedient, say_told);
  place.server().stop();
  const auto tried = have_done(place, script, R"("$D" release -k a --token "$T" 2>err)");
  CHECK(tried == "did 69\n");
  place.server().cont();
  CHECK(eventually([&] { return place.is_free("a"); }));
  CHECK(script.out() == "in\ndid 69\n");
  script.signal(SIGKILL);
  CHECK(keepers_leave(script.pid()));
}

TEST_CASE("attach: a release that went elsewhere leaves the lock kept, and its loss told") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -t 15s", obedient, say_told);
    const std::string elsewhere = R"("$D" release -k a --token "$T" --server "local:$PWD" 2>err)";
    CHECK(have_done(place, script, elsewhere) == "did 79\n");
    CHECK(keepers_of(script.pid()).size() == 1);
    CHECK(!place.is_free("a"));
    // A later renewal has to find the lock still held.
    if (!place.is_local()) await_renewal(place.server(), "a");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    CHECK(eventually([&] { return script.out() == "in\ndid 79\ntold\n"; }));
  });
}

TEST_CASE("attach: a release that reached no server leaves the lock kept") {
  const Place place(Engine::redis);
  auto script = attached(place, "-k a -t 15s", obedient, say_told);
  const std::string nowhere = R"("$D" release -k a --token "$T" --server unix:///nowhere 2>err)";
  CHECK(have_done(place, script, nowhere) == "did 69\n");
  CHECK(is_renewed_twice(place, "a"));
  CHECK(script.out() == "in\ndid 69\n");
  CHECK(have_done(place, script, R"("$D" release -k a --token "$T")") == "did 0\n");
  CHECK(keepers_leave(script.pid()));
}

TEST_CASE("attach: a keeper that is stopped holds up no release, and takes it for no loss later") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a", obedient, say_told);
    const auto keepers = keepers_of(script.pid());
    REQUIRE(keepers.size() == 1);
    kill(keepers[0], SIGSTOP);
    CHECK(have_done(place, script, R"("$D" release -k a --token "$T")") == "did 0\n");
    CHECK(place.is_free("a"));
    kill(keepers[0], SIGCONT);
    CHECK(keepers_leave(script.pid()));
    CHECK(script.out() == "in\ndid 0\n");
  });
}

TEST_CASE("attach: a keeper that gets no descriptor for a visitor waits for one without spinning") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -t 30s", obedient, say_told);
    const auto keepers = keepers_of(script.pid());
    REQUIRE(keepers.size() == 1);
    rlimit before{};
    rlimit few{};
    REQUIRE(prlimit(keepers[0], RLIMIT_NOFILE, nullptr, &before) == 0);
    few.rlim_cur = 5;  // enough for poll, and all of them are in use
    few.rlim_max = before.rlim_max;
    REQUIRE(prlimit(keepers[0], RLIMIT_NOFILE, &few, nullptr) == 0);
    const auto spent = cpu_ticks(keepers[0]);
    CHECK(have_done(place, script, R"("$D" release -k a --token "$T")") == "did 0\n");
    CHECK(cpu_ticks(keepers[0]) < spent + 20);
    REQUIRE(prlimit(keepers[0], RLIMIT_NOFILE, &before, nullptr) == 0);
    CHECK(keepers_leave(script.pid()));
    CHECK(script.out() == "in\ndid 0\n");
  });
}

TEST_CASE("attach: whoever has another token cannot speak to the keeper") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -t 30s", obedient, say_told);
    CHECK(have_done(place, script, R"("$D" release -k a --token "${T}0" 2>err)") == "did 79\n");
    CHECK(have_done(place, script, R"("$D" release -k other --token "$T" 2>err)") == "did 79\n");
    CHECK(keepers_of(script.pid()).size() == 1);
    const auto sockets = read_file("/proc/net/unix");
    const auto token = have_done(place, script, R"(echo "$T")");
    CHECK(token.size() > 40);
    CHECK(!holds(sockets, token.substr(token.find(':') + 1, 32)));
    CHECK(!place.is_free("a"));
    CHECK(end_script(script));
  });
}

TEST_CASE("attach: another user who has the token is not listened to, and the loss is told") {
  if (skip_if(!not_root_here().empty(), not_root_here())) return;
  const Place place(Engine::redis);
  const OrdinaryUser user;
  // The server answers all users, unlike the attach daemon.
  REQUIRE(chmod(place.server().dir().path().c_str(), 0711) == 0);
  REQUIRE(chmod(place.server().socket_path().c_str(), 0777) == 0);
  auto script = attached(place, "-k a -t 6s", obedient, say_told);
  const std::string said = have_done(place, script, R"(echo "$T")");
  const ProcessOptions options{.env = {{"HOME", user.dir().path()}}};
  check_quiet(run(user.run_as({user.own_copy(dlock_path()), "release", "-k", "a", "--token",
                               said.substr(0, said.find('\n')), "--server", place.url()}),
                  clean(options)));
  // A daemon that knew of the release would leave silently.
  CHECK(eventually([&] { return script.out() == "in\n" + said + "told\n"; }));
  CHECK(keepers_leave(script.pid()));
}

}  // namespace

namespace {

/// A script with a lock on `a` and a child in its own session, which reports that it was told to
/// end, and does not end. The script goes on with `then`.
Process with_stubborn_child(const Place& place, const std::string& then, const std::string& first) {
  auto script = attached(place, "-k a -t 6s",
                         "setsid sh -c 'trap \"echo child told\" TERM; echo $$ >child; while :; do "
                         "sleep 0.05; done' &\n"
                         "until [ -s child ]; do sleep 0.01; done; echo ready\n" +
                             then,
                         first);
  REQUIRE(eventually([&] { return holds(script.out(), "ready"); }));
  return script;
}

bool child_lives(const Place& place) {
  return is_alive(std::stoi(read_file(place.dir() / "child")));
}

TEST_CASE(
    "attach: when the lock is lost, the script's children are told, and what stays is killed") {
  on_each_engine([](const Place& place) {
    auto script =
        with_stubborn_child(place, "while :; do sleep 0.05; done", "trap 'echo script told' TERM");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    const auto result = script.wait();
    CHECK(result.signal == SIGKILL);
    CHECK(holds(result.out, "script told\n"));
    CHECK(holds(result.out, "child told\n"));
    CHECK(holds(result.err, "dlock: lost a: "));
    CHECK(holds(result.err, "evicted by "));
    CHECK(eventually([&] { return !child_lives(place); }));
    CHECK(keepers_leave(script.pid()));
  });
}

TEST_CASE("attach: why the lock was lost stays in a log that the script goes on writing") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -t 6s",
                           "exec 2>log\ntrap : TERM\nwhile :; do echo works >&2; sleep 0.05; done");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    CHECK(script.wait().signal == SIGKILL);
    CHECK(holds(read_file(place.dir() / "log"), "dlock: lost a: evicted by "));
    CHECK(holds(read_file(place.dir() / "log"), "SIGKILL follows in "));
    CHECK(keepers_leave(script.pid()));
  });
}

TEST_CASE("attach: a script whose lock was lost waits for no keeper when it releases") {
  on_each_engine([](const Place& place) {
    auto script = with_stubborn_child(
        place, "wait; wait", "trap '\"$D\" release -q -k a --token $T; echo code $?; exit 3' TERM");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    CHECK(script.wait().exit_code == 3);
    CHECK(holds(script.out(), "code 79"));
    CHECK(keepers_leave(script.pid()));
  });
}

bool child_is_gone_before_the_lease_ends() {
  const Place place(Engine::redis);
  auto script = with_stubborn_child(place, "exec sleep 60", ":");
  const auto end = lease_end_after([&] { place.server().stop(); }, place.server(), "a");
  if (!end) return false;
  CHECK(script.wait().signal == SIGTERM);
  CHECK(eventually([&] { return !child_lives(place); }));
  const bool in_time = BootClock::now() < *end;
  place.server().cont();
  CHECK(eventually([&] { return place.is_free("a"); }));
  CHECK(keepers_leave(script.pid()));
  return in_time;
}

TEST_CASE("attach: a child that outlives the script after a loss is killed before the lease ends") {
  CHECK(in_one_of(3, child_is_gone_before_the_lease_ends));
}

TEST_CASE("attach: process 1 of a container is told that the lock waits for its lease") {
  if (skip_if(run({"unshare", "-pf", "--mount-proc", "true"}).exit_code != 0,
              "this user may make no pid namespace"))
    return;
  on_each_engine([](const Place& place) {
    const auto result = place.shell(
        "exec unshare -pf --mount-proc sh -c '\"$D\" acquire -k a --attach $$ >/dev/null; exit "
        "$?'");
    check_says(result, 0, place.is_local() ? "" : "process 1 ends");
    CHECK(count_lines(result.err) == (place.is_local() ? 0 : 1));
  });
}

}  // namespace

}  // namespace dlock::test
