#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <regex>

#include "base/wait.hpp"
#include "cli/line.hpp"
#include "cli/place.hpp"
#include "support/scene.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

TEST_CASE("attach: the lock is the script's until it ends, however it ends") {
  on_each_engine([](const Place& place) {
    struct Way {
      std::string then;
      int signal;
    };
    const std::vector<Way> ways{{"exec sleep 60", SIGKILL},
                                {"exec sleep 60", SIGTERM},
                                {"until [ -e end ]; do sleep 0.01; done; exit 7", 0}};
    for (const Way& way : ways) {
      CAPTURE(way.signal);
      auto script = attached(place, "-k a", way.then);
      const auto holder = place.state("a")["holders"].at(0);
      CHECK(holder["pid"] == script.pid());
      CHECK(holder["command"] != "dlock");
      CHECK(place.dlock({"run", "-q", "-n", "-k", "a", "--", "true"}).exit_code == 75);
      auto next = place.start({"run", "-q", "-k", "a", "--", "true"});
      REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
      if (way.signal != 0) script.signal(way.signal);
      if (way.signal == 0) write_file(place.dir() / "end", "");
      const auto result = script.wait();
      CHECK(result.signal == way.signal);
      if (way.signal == 0) CHECK(result.exit_code == 7);
      CHECK(next.wait(milliseconds(10'000)).exit_code == 0);  // the lease lasts 30 s
      CHECK(keepers_leave(script.pid()));
    }
  });
}

TEST_CASE("attach: on a server the lease is renewed many times, on this host there is none") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -t 15s");
    const auto before = place.state("a")["holders"].at(0);
    CHECK(before["lease_left_ms"].is_null() == place.is_local());
    if (place.is_local()) {
      CHECK(end_script(script));
      return;
    }
    CHECK(is_renewed_twice(place, "a"));
    const auto holders = place.state("a")["holders"];
    REQUIRE(holders.size() == 1);
    CHECK(holders[0]["fence"] == before["fence"]);
    CHECK(script.running());
    CHECK(end_script(script));
  });
}

TEST_CASE("attach: the ttl is 30 s where nothing else is said") {
  const Place place(Engine::redis);
  auto script = attached(place, "-k a");
  CHECK(place.state("a")["holders"].at(0)["lease_left_ms"] > 20'000);
  auto other = attached(place, "-k b -t 1h");
  CHECK(place.state("b")["holders"].at(0)["lease_left_ms"] > 3'500'000);
  CHECK(end_script(script));
  CHECK(end_script(other));
}

TEST_CASE("attach: the keeper holds nothing of its caller's") {
  on_each_engine([](const Place& place) {
    auto script = place.start_shell(R"(
        exec 9>file
        flock 9
        x=$("$D" acquire -k a --attach $$)
        "$D" acquire -k b --attach $$ | cat >/dev/null
        "$D" acquire -k c --attach $$ >c.out 2>&1
        exec 9>&-
        flock -n file echo let go
        exec sleep 60)");
    REQUIRE(eventually([&] { return script.out() == "let go\n"; }));
    const auto keepers = keepers_of(script.pid());
    CHECK(keepers.size() == 3);
    for (const pid_t keeper : keepers) {
      const std::string proc = "/proc/" + std::to_string(keeper) + "/";
      for (const char* fd : {"fd/0", "fd/1", "fd/2"}) {
        CHECK(std::filesystem::read_symlink(proc + fd) == "/dev/null");
      }
      CHECK(std::filesystem::read_symlink(proc + "cwd") == "/");
      CHECK(getsid(keeper) == keeper);
      const std::string stat = read_file(proc + "stat");
      int terminal = -1;
      std::sscanf(stat.c_str() + stat.rfind(')'), ") %*c %*d %*d %*d %d", &terminal);
      CHECK(terminal == 0);
    }
    CHECK(end_script(script));
  });
}

TEST_CASE("attach: the keeper is no child of the script, which has none it did not start") {
  const Place place(Engine::local);
  auto script = attached(place, "-k a",
                         "cat /proc/$$/task/$$/children; echo; wait; echo waited; exec sleep 60");
  CHECK(eventually([&] { return script.out().ends_with("waited\n"); }));
  const auto keepers = keepers_of(script.pid());
  REQUIRE(keepers.size() == 1);
  CHECK(!holds(script.out(), std::to_string(keepers[0])));
  CHECK(end_script(script));
}

TEST_CASE("attach: a lock that is thrown out ends the script by SIGTERM, or by --signal") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -t 6s");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    CHECK(script.wait().signal == SIGTERM);
    CHECK(keepers_leave(script.pid()));

    auto chosen = attached(place, "-k a -t 6s --signal usr1", "while :; do sleep 0.01; done",
                           "trap 'echo told; exit 3' USR1");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    const auto result = chosen.wait();
    CHECK(result.exit_code == 3);
    CHECK(result.out == "in\ntold\n");
    CHECK(keepers_leave(chosen.pid()));
  });
}

TEST_CASE(
    "attach: of several locks the others stay when one is lost, and the script is told once") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a -k b -k c -t 15s", "until [ -e end ]; do sleep 0.01; done",
                           "trap 'echo told' TERM");
    CHECK(place.dlock({"release", "-q", "--force", "a"}).exit_code == 0);
    REQUIRE(eventually([&] { return script.out() == "in\ntold\n"; }));
    CHECK(place.dlock({"release", "-q", "--force", "b"}).exit_code == 0);
    CHECK(!place.is_free("c"));
    write_file(place.dir() / "end", "");
    CHECK(script.wait().out == "in\ntold\n");
    CHECK(eventually([&] { return place.is_free("c"); }));
    CHECK(keepers_leave(script.pid()));
  });
}

bool is_told_before_the_lease_ends() {
  const Place place(Engine::redis);
  auto script = attached(place, "-k a -t 6s");
  const auto end = lease_end_after([&] { place.server().stop(); }, place.server(), "a");
  if (!end) return false;
  CHECK(script.wait().signal == SIGTERM);
  const bool in_time = BootClock::now() < *end;
  place.server().cont();
  CHECK(eventually([&] { return place.is_free("a"); }));
  CHECK(keepers_leave(script.pid()));
  return in_time;
}

TEST_CASE("attach: a server that is cut off has the script told before the lease ends") {
  CHECK(in_one_of(3, is_told_before_the_lease_ends));
}

TEST_CASE("attach: a server that is cut off once more has the script told once more") {
  const Place place(Engine::redis);
  auto script =
      attached(place, "-k a -t 15s", "while :; do sleep 0.01; done", "trap 'echo told' TERM");
  std::string told = "in\n";
  for (int outage = 0; outage < 2; ++outage) {
    CAPTURE(outage);
    place.server().stop();
    told += "told\n";
    CHECK(eventually([&] { return script.out() == told; }));
    place.server().cont();
    REQUIRE(eventually([&] {
      const auto holders = place.state("a")["holders"];
      return holders.empty() || holders[0]["lease_left_ms"] > 11'000;
    }));
    CHECK(!place.is_free("a"));
  }
  CHECK(end_script(script));
}

TEST_CASE("attach: a script that ends while dlock waits leaves the queue") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("a");
    const auto free_one = place.acquired("b");
    CHECK(place.dlock({"release", "b", "--token", free_one}).exit_code == 0);
    Process script({"sleep", "60"});
    auto waiter =
        place.start({"acquire", "-k", "a", "-k", "b", "--attach", std::to_string(script.pid())});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    script.signal(SIGKILL);  // nobody reaps it yet
    const auto result = waiter.wait(milliseconds(10'000));
    check_says(result, 75, "has ended");
    CHECK(result.out == "");
    CHECK(place.waiters("a") == 0);
    CHECK(place.is_free("b"));
  });
}

TEST_CASE("attach: the keeper killed: on this host the lock stays, on a server its lease ends") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, place.is_local() ? "-k a -t 2s" : "-k a -t 6s");
    const auto keepers = keepers_of(script.pid());
    REQUIRE(keepers.size() == 1);
    kill(keepers[0], SIGKILL);
    REQUIRE(keepers_leave(script.pid()));
    if (place.is_local()) {
      const auto refused = place.dlock({"run", "-q", "-k", "a", "-w", "2500ms", "--", "true"});
      CHECK(refused.exit_code == 75);
      script.signal(SIGKILL);
    }
    CHECK(eventually([&] { return place.is_free("a"); }));
    CHECK(script.running() != place.is_local());
  });
}

TEST_CASE("attach: the keeper killed while the token is written is an error") {
  on_each_engine([](const Place& place) {
    auto script = place.start_shell(R"(
        { head -c 65536 /dev/zero; "$D" acquire -k a -t 6s --attach $$; echo "code $?" >&2; } |
          { until [ -e go ]; do sleep 0.01; done; cat >/dev/null; }
        exec sleep 60)");
    pid_t keeper = 0;
    REQUIRE(eventually([&] {
      for (const pid_t each : keepers_of(script.pid())) {
        if (getsid(each) == each) keeper = each;
      }
      return keeper != 0;
    }));
    // Wait until dlock blocks at the full pipe.
    REQUIRE(fall_asleep(keepers_of(script.pid())));
    kill(keeper, SIGKILL);
    write_file(place.dir() / "go", "");
    CHECK(eventually([&] { return script.err().ends_with("code 71\n"); }));
    CAPTURE(script.err());
    CHECK(holds(script.err(), "ended too soon"));
    CHECK(end_script(script));
    CHECK(eventually([&] { return place.is_free("a"); }));
  });
}

TEST_CASE(
    "attach: a script that ends while its token is written is told of, though a release lasts") {
  const Place place(Engine::redis);
  Process script({"sleep", "60"});
  const FullPipe full;
  const ProcessOptions options{.stdout_fd = full.writer.get()};
  const std::string pid = std::to_string(script.pid());
  auto asker = place.start({"acquire", "-k", "a", "-t", "1m", "--attach", pid}, options);
  // Wait for dlock and the daemon, which may need the server before it can take over the lock.
  REQUIRE(eventually([&] { return keepers_of(script.pid()).size() == 2; }));
  REQUIRE(fall_asleep(keepers_of(script.pid())));
  place.server().stop();
  script.kill_hard();
  // Wait until the daemon has seen the end of the script: its release is in progress now.
  REQUIRE(fall_asleep(keepers_of(script.pid())));
  char bytes[4096];
  while (read(full.reader.get(), bytes, sizeof bytes) > 0) {
  }
  check_message(asker.wait(), 75, "process " + pid + " has ended");
  place.server().cont();
  CHECK(eventually([&] { return place.is_free("a"); }));
  CHECK(keepers_leave(script.pid()));
}

TEST_CASE("attach: a keeper ends by its script alone, not by what a session or a host sends") {
  on_each_engine([](const Place& place) {
    auto script = attached(place, "-k a");
    const auto keepers = keepers_of(script.pid());
    REQUIRE(keepers.size() == 1);
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGTSTP, SIGPIPE}) {
      kill(keepers[0], signal);
    }
    auto other = place.hold("b");
    CHECK(keepers_of(script.pid()) == keepers);
    CHECK(!place.is_free("a"));
    script.signal(SIGKILL);
    CHECK(eventually([&] { return place.is_free("a"); }));
    CHECK(keepers_leave(script.pid()));
  });
}

TEST_CASE("attach: a token that cannot be written is no lock, and leaves no keeper") {
  on_each_engine([](const Place& place) {
    for (const char* target : {">&-", ">/dev/full"}) {
      auto script = place.start_shell(std::string(R"("$D" acquire -k a --attach $$ )") + target +
                                      "; echo $?; exec sleep 60");
      REQUIRE(eventually([&] { return script.out() == "71\n"; }));
      CHECK(is_one_message(script.err()));
      CHECK(holds(script.err(), "released"));
      CHECK(place.is_free("a"));
      CHECK(keepers_leave(script.pid()));
    }
    auto script = place.start_shell(R"("$D" acquire -q -k a --attach $$ >&-; exec sleep 60)");
    const auto kept = [&] { return !place.is_free("a") && keepers_of(script.pid()).size() == 1; };
    CHECK(eventually(kept));
    CHECK(end_script(script));
  });
}

/// Reads the system log of programs that run in their own mount namespace, which only root can
/// create.
class SystemLog {
 public:
  explicit SystemLog(const std::string& path)
      : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    name_.sun_family = AF_UNIX;
    path.copy(name_.sun_path, sizeof name_.sun_path - 1);
    REQUIRE(bind(fd_.get(), address(), sizeof name_) == 0);
  }
  std::string next() const {
    char text[2000];
    const auto got = recv(fd_.get(), text, sizeof text, 0);
    return {text, got > 0 ? static_cast<std::size_t>(got) : 0};
  }
  /// Sends messages until the log accepts no more.
  void fill() const {
    const Fd writer(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    while (sendto(writer.get(), "x", 1, 0, address(), sizeof name_) == 1) {
    }
    REQUIRE(errno == EAGAIN);
  }

 private:
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&name_); }

  sockaddr_un name_{};
  Fd fd_;
};

/// Whether this user may not create a mount namespace, so that the test is skipped.
bool lacks_mount_namespaces() {
  return skip_if(run({"unshare", "-m", "true"}).exit_code != 0, "no mount namespaces here");
}

/// A script with a lock on `a<TAB>b` whose attach daemon logs to the socket `log` of the place.
Process attached_with_log(const Place& place) {
  const std::string script = R"(exec unshare -m sh -ec '
      mkdir -p dev
      : >dev/null
      mount --bind /dev/null dev/null
      ln -sf "$PWD/log" dev/log
      mount --rbind dev /dev
      "$D" acquire -k "a	b" -t 15s --attach $$ >token
      echo in
      exec sleep 60')";
  return place.begun_shell(script);
}

TEST_CASE("attach: a loss is told to the system's log, with its reason and who was signalled") {
  if (lacks_mount_namespaces()) return;
  on_each_engine([](const Place& place) {
    const SystemLog log(place.dir() / "log");
    auto script = attached_with_log(place);
    CHECK(place.dlock({"release", "-q", "--force", "a\tb"}).exit_code == 0);
    CHECK(script.wait().signal == SIGTERM);
    std::string line;
    CHECK(eventually([&] { return !(line = log.next()).empty(); }));
    CAPTURE(line);
    CHECK(std::regex_search(
        line, std::regex("^<11>[A-Z][a-z]{2} [ 1-3][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} dlock\\[")));
    CHECK(holds(line, "]: lost a\\x09b: "));
    CHECK(holds(line, ": evicted by "));
    CHECK(holds(line, "; sent signal TERM to process " + std::to_string(script.pid()) + " (s"));
    CHECK(keepers_leave(script.pid()));
  });
}

TEST_CASE("attach: a system log that takes nothing keeps no keeper from what it has to do") {
  if (lacks_mount_namespaces()) return;
  on_each_engine([](const Place& place) {
    const SystemLog log(place.dir() / "log");
    auto script = attached_with_log(place);
    log.fill();
    CHECK(place.dlock({"release", "-q", "--force", "a\tb"}).exit_code == 0);
    CHECK(script.wait().signal == SIGTERM);
    CHECK(keepers_leave(script.pid()));
  });
}

TEST_CASE("attach: dlock ended at any moment leaves a lock that is kept, or none") {
  on_each_engine([](const Place& place) {
    Process script({"sleep", "60"});
    const std::string pid = std::to_string(script.pid());
    constexpr int runs = 30;
    const auto key_of = [](int run) { return "k" + std::to_string(run); };
    for (int run = 0; run < runs; ++run) {
      CAPTURE(run);
      auto asker = place.start({"acquire", "-k", key_of(run), "-t", "6s", "--attach", pid});
      poll_until({}, later(BootClock::now(), microseconds(run * 400)));
      asker.signal(run % 2 == 0 ? SIGKILL : SIGTERM);
      const auto result = asker.wait();
      CHECK(count_lines(result.err) == 0);
      const bool done = result.signal == 0;
      if (done) CHECK(result.exit_code == 0);
      if (done) CHECK(!place.is_free(key_of(run)));
      // The kill may have come after its last step, but the token was printed by then.
      if (result.out.empty()) continue;
      const auto token = result.out.substr(0, result.out.size() - 1);
      const auto released = place.dlock({"release", key_of(run), "--token", token});
      CHECK((released.exit_code == 0 || !done));
    }
    for (int run = 0; run < runs; ++run) {
      CAPTURE(run);
      CHECK(eventually([&] { return place.is_free(key_of(run)); }));
    }
    CHECK(keepers_leave(script.pid()));
    CHECK(script.running());
  });
}

}  // namespace
TEST_CASE("attach: renew with a ttl of its own is refused, for the keeper goes by the first") {
  on_each_engine([](const Place& place) {
    const Result result = place.shell(
        "T=$(\"$D\" acquire -k a --attach $$) && \"$D\" renew -k a --token $T && echo renewed;"
        "\"$D\" renew -k a --token $T -t 1s; echo $?; \"$D\" inspect -q a && echo held");
    CHECK(result.out == "renewed\n64\nheld\n");
    CHECK(is_one_message(result.err));
  });
}

}  // namespace dlock::test
