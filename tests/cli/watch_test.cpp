#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/line.hpp"
#include "cli/live_support.hpp"
#include "support/fault_proxy.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

using Json = nlohmann::ordered_json;

const std::string second_screen = "\x1b[?1049h";
const std::string first_screen = "\x1b[?1049l";
const std::string top = "\x1b[H";
const std::string never_locked = "a is free; nobody has locked it in the last seven days\n";

std::vector<Json> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<Json> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST_CASE("watch: draws in place on a terminal, anew at its new size, and dies of ^C") {
  on_each_engine([](const Place& place) {
    Watcher user(place);
    user.type("$D inspect nightly --watch");
    REQUIRE(user.shows(second_screen));
    REQUIRE(user.shows("free"));
    auto holder = place.hold("nightly", {"--label", std::string(60, 'l')});
    REQUIRE(user.shows("held by"));
    CHECK(user.shows(top));
    // The time is updated although nothing happens.
    CHECK(user.shows(" for "));
    CHECK(user.shows(" for "));
    CHECK(user.count(std::string(60, 'l')) > 0);
    user.resize(40);
    CHECK(user.shows(std::string(25, 'l') + "\u2026"));
    user.press("\x1a");
    REQUIRE(user.shows(first_screen));
    REQUIRE(user.shows("Stopped"));
    user.type("fg");
    REQUIRE(user.shows(second_screen));
    holder.signal(SIGTERM);
    REQUIRE(user.shows("free"));
    user.press("\x03");
    REQUIRE(user.shows(first_screen + "nightly is free"));
    user.type("echo code-$?");
    CHECK(user.shows("code-130"));
  });
}

TEST_CASE(
    "watch: what is too high for the terminal is cut, and in the background nothing is drawn") {
  const Place place(Engine::local);
  for (int i = 10; i < 40; ++i) place.acquired("key-" + std::to_string(i), {"-t", "1h"});
  Watcher user(place);
  user.type("$D inspect --watch");
  REQUIRE(user.shows("all locks at local:"));
  REQUIRE(user.shows("key-10"));
  CHECK(user.shows("more lines"));
  CHECK(user.count("key-39") == 0);
  user.press("\x03");
  REQUIRE(user.shows("key-39"));
  const auto drawn = user.count(top);
  user.type("$D inspect --watch & sleep 1.2; kill $!; wait $!; echo code-$?");
  CHECK(user.shows("code-143"));
  CHECK(user.count(top) == drawn);
}

TEST_CASE("watch: into a pipe a block for each change and none without, till a signal") {
  on_each_engine([](const Place& place) {
    auto one = place.start({"inspect", "a", "--watch"});
    auto all = place.start({"inspect", "--watch"});
    auto json = place.start({"inspect", "a", "b*", "--watch", "--json"});
    REQUIRE(eventually([&] { return one.out() == never_locked; }));
    REQUIRE(eventually([&] { return all.out() == "no locks\n"; }));
    REQUIRE(eventually([&] { return count_lines(json.out()) == 1; }));
    // The grant and the start of the command are two changes, and a fast watch would see both.
    for (Process* each : {&one, &all, &json}) each->signal(SIGSTOP);
    auto holder = place.hold("a", {"-t", "12s"});
    // A server has the pid from the first renewal on.
    REQUIRE(eventually([&] { return place.state("a")["holders"][0].contains("command_pid"); }));
    for (Process* each : {&one, &all, &json}) each->signal(SIGCONT);
    REQUIRE(eventually([&] { return holds(one.out(), never_locked + "\na\n  held by "); }));
    REQUIRE(eventually([&] { return holds(all.out(), "no locks\n\nKEY "); }));
    REQUIRE(eventually([&] { return count_lines(json.out()) == 2; }));
    const auto token = place.acquired("b1");
    REQUIRE(eventually([&] { return count_lines(json.out()) == 3; }));
    CHECK(place.dlock({"release", "b1", "--token", token}).exit_code == 0);
    REQUIRE(eventually([&] { return count_lines(json.out()) == 4; }));
    const auto lines = lines_of(json.out());
    CHECK(lines[0]["holders"].empty());
    CHECK(lines[1]["holders"][0]["command"] == "sh");
    CHECK(lines[2]["key"] == "b1");
    CHECK(lines[3] == Json::parse(R"({"key":"b1","holders":[],"waiters":[]})"));
    if (!place.is_local()) await_renewal(place.server(), "a");
    // Renewals are not changes. The end of the command is one, before the release.
    CHECK(times(one.out(), "a\n  held by") == 1);
    holder.signal(SIGTERM);
    REQUIRE(eventually([&] { return holds(one.out(), "\n\na is free\n  last held by "); }));
    REQUIRE(eventually([&] { return all.out().ends_with("\n\nno locks\n"); }));
    for (Process* each : {&one, &all, &json}) {
      each->signal(SIGTERM);
      const auto result = each->wait();
      CHECK(result.signal == SIGTERM);
      CHECK(result.err == "");
      CHECK(!holds(result.out, "\x1b"));
    }
  });
}

TEST_CASE("watch: ends quietly once nobody reads, though nothing changes") {
  on_each_engine([](const Place& place) {
    const auto result = place.shell(R"(("$D" inspect a --watch; echo $? >code) | head -n 1)");
    CHECK(result.out == never_locked);
    CHECK(result.err == "");
    CHECK(eventually([&] { return read_file(place.dir() / "code") == "141\n"; }));
  });
}

TEST_CASE("watch: a signal ends it also while its reader stands still, and leaves whole lines") {
  const Place place(Engine::local);
  for (int i = 10; i < 50; ++i) place.acquired("key-" + std::to_string(i), {"-t", "1h"});
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--json"}, std::vector<std::string>{}}) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const Fd reader(ends[0]), writer(ends[1]);
    const int size = fcntl(writer.get(), F_SETPIPE_SZ, 4096);
    REQUIRE(size > 0);
    const ProcessOptions options{.stdout_fd = writer.get()};
    std::vector<std::string> words{"inspect", "--watch"};
    words.insert(words.end(), more.begin(), more.end());
    auto watching = place.start(words, options);
    REQUIRE(eventually([&] {
      int held = 0;
      return ioctl(reader.get(), FIONREAD, &held) == 0 && held > 0 &&
             is_in_state('S', watching.pid());
    }));
    watching.signal(SIGTERM);
    CHECK(watching.wait().signal == SIGTERM);
    std::string left(4096, ' ');
    const auto got = read(reader.get(), left.data(), left.size());
    REQUIRE(got > 0);
    CHECK(left[static_cast<std::size_t>(got) - 1] == '\n');
  }
}

TEST_CASE("watch: a server that goes away is one line, and when it is back the watch goes on") {
  const Place place(Engine::redis);
  auto plain = place.start({"inspect", "a", "--watch"});
  REQUIRE(eventually([&] { return plain.out() == never_locked; }));
  Watcher user(place);
  user.type("$D inspect a --watch");
  REQUIRE(user.shows("free"));
  place.server().kill_hard();
  REQUIRE(eventually([&] { return holds(plain.err(), "; still watching, trying again\n"); }));
  REQUIRE(user.shows("; trying again"));
  place.server().restart();
  REQUIRE(eventually([&] { return holds(plain.err(), "answers again after "); }));
  CHECK(count_lines(plain.err()) == 2);
  const auto holder = place.hold("a");
  CHECK(eventually([&] { return holds(plain.out(), "held by"); }));
  CHECK(user.shows("held by"));
  const auto never_there = place.dlock({"inspect", "a", "--watch", "--server", "unix:///nowhere"});
  CHECK(never_there.exit_code == 69);
  CHECK(place.dlock({"inspect", "a", "--watch", "-q"}).exit_code == 64);
}

TEST_CASE("watch: an answer that took seconds does not put off the next reading by a minute") {
  RedisScene scene;
  FaultProxy proxy(scene.server.address());
  scene.go_through(proxy.url());
  auto watching = scene.start({"inspect", "a", "--watch"});
  REQUIRE(eventually([&] { return watching.out() == never_locked; }));
  proxy.hold(Direction::replies);
  REQUIRE(eventually([&] { return proxy.held(Direction::replies) > 0; }));
  std::this_thread::sleep_for(milliseconds(3000));
  proxy.deliver_held(Direction::replies);
  scene.go_through(scene.server.url());
  const auto holder = scene.hold("a", "go");
  CHECK(eventually([&] { return holds(watching.out(), "held by"); }));
  CHECK(watching.err() == "");
}

TEST_CASE(
    "watch: without cursor control a terminal gets plain blocks, at 80 columns if it has no size") {
  const Place place(Engine::local);
  const auto holder = place.hold("a", {"--label", std::string(150, 'l')});
  for (const char* term : {"dumb", ""}) {
    Watcher user(place, {{"TERM", term}});
    user.resize(0);
    user.type("$D inspect a --watch");
    REQUIRE(user.shows("a\r\n  held by "));
    CHECK(user.shows("\u2026"));
    CHECK(user.shows("fence"));
    user.press("\x03");
    user.type("echo code-$?");
    CHECK(user.shows("code-130"));
    CHECK(user.count("\x1b") == 0);
  }
}

TEST_CASE(
    "watch: a terminal that does not control it gets plain blocks, for nothing else is seen") {
  const Place place(Engine::local);
  const auto holder = place.hold("a");
  Watcher user(place);
  user.type("setsid -w sh -c '\"$D\" inspect a --watch & echo pid-$!.; wait $!; echo code-$?'");
  REQUIRE(user.shows("pid-"));
  const pid_t watching = user.number();
  REQUIRE(watching > 1);
  // The text may have come before the number.
  CHECK(eventually([&] { return user.count("held by") > 0; }));
  CHECK(kill(watching, SIGTERM) == 0);
  CHECK(user.shows("code-143"));
  CHECK(user.count(second_screen) == 0);
  CHECK(user.count(top) == 0);
}

TEST_CASE("inspect: colours on a terminal alone, and not for NO_COLOR or a dumb one") {
  const Place place(Engine::local);
  const auto holder = place.hold("schl\u00fcssel");
  Watcher user(place);
  const auto shown_by = [&](const std::string& command) {
    const auto before = user.screen().size();
    user.type(command + "; echo do\"\"ne");
    REQUIRE(user.shows("done"));
    return user.screen().substr(before);
  };
  CHECK(holds(shown_by("$D inspect schl*"), "\x1b[1mschl\u00fcssel\x1b[0m"));
  CHECK(!holds(shown_by("NO_COLOR=1 $D inspect schl*"), "\x1b"));
  CHECK(!holds(shown_by("TERM=dumb $D inspect schl*"), "\x1b"));
  CHECK(!holds(shown_by("TERM= $D inspect schl*"), "\x1b"));
  CHECK(!holds(shown_by("$D inspect schl* | cat"), "\x1b"));
  // In that locale a terminal may take a byte of a letter for a control character; a pipe does not.
  CHECK(holds(shown_by("LC_ALL=C $D inspect schl*"), "schl\\xC3\\xBCssel"));
  CHECK(holds(shown_by("LC_ALL= LC_CTYPE= LANG= $D inspect schl*"), "schl\\xC3\\xBCssel"));
  CHECK(holds(shown_by("LC_ALL=C $D inspect schl* | cat"), "schl\u00fcssel"));
}

}  // namespace
}  // namespace dlock::test
