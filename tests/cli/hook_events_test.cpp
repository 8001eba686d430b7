#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>

#include "cli/place.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

/// A hook that appends a line for each event to the file `events`.
const std::string reporting =
    R"(echo "$DLOCK_EVENT $(echo $DLOCK_KEY) exit=$DLOCK_EXIT_CODE fence=$DLOCK_FENCE )"
    R"(holder=$DLOCK_HOLDER reason=$DLOCK_REASON where=$DLOCK_WHERE" >>events)";

std::vector<std::string> all_events(const Place& place) {
  const auto path = place.dir() / "events";
  return wait_for_file(path) ? lines_of(read_file(path)) : std::vector<std::string>();
}

/// dlock, called in the directory of `events`.
Result in_place(const Place& place, std::vector<std::string> words,
                const std::vector<std::string>& more) {
  words.insert(words.end(), {"--hook", reporting});
  words.insert(words.end(), more.begin(), more.end());
  return place.dlock(words, {.cwd = place.dir().path()});
}

Result run(const Place& place, const std::vector<std::string>& options) {
  return in_place(place, {"run", "-q"}, options);
}

/// The events since the last call.
std::vector<std::string> new_events(const Place& place) {
  auto found = all_events(place);
  CHECK(place.shell("rm events").exit_code == 0);
  return found;
}

bool has_all(const std::string& event, const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return holds(event, part); });
}

TEST_CASE("hook: is called for a run that is skipped, with the holder and the reason") {
  on_each_engine([](const Place& place) {
    auto holder = place.hold("a");
    const std::string pid = " pid " + std::to_string(holder.pid()) + " ";
    CHECK(run(place, {"-n", "-E", "0", "-k", "b", "-k", "a", "--", "true"}).exit_code == 0);
    const auto skipped = new_events(place);
    REQUIRE(skipped.size() == 1);
    CHECK(skipped[0].starts_with("not-acquired b a exit=0 fence= holder="));
    CHECK(has_all(skipped[0], {pid, "reason=a is held by ", " where=" + place.url()}));

    CHECK(run(place, {"-w", "0.2", "-k", "a", "--", "true"}).exit_code == 75);
    const auto late = new_events(place);
    REQUIRE(late.size() == 2);
    CHECK(late[0].starts_with("waiting a exit= "));
    CHECK(late[1].starts_with("not-acquired a exit=75 "));
    CHECK(has_all(late[1], {pid, "reason=not acquired within ", "a is held by "}));
  });
}

TEST_CASE("hook: a run that a newer one supersedes names that one") {
  on_each_engine([](const Place& place) {
    const auto present = place.hold("a");
    auto older =
        place.start({"run", "-q", "-k", "a", "--latest", "--hook", reporting, "--", "true"},
                    {.cwd = place.dir().path()});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    const auto newer =
        place.start({"run", "-q", "-k", "a", "--latest", "--label", "build 18", "--", "true"});
    CHECK(older.wait().exit_code == 75);
    const auto told = all_events(place);
    REQUIRE(told.size() == 2);
    CHECK(told[1].starts_with("not-acquired a exit=75 "));
    CHECK(has_all(told[1], {" pid " + std::to_string(newer.pid()) + " (true) [build 18] reason=",
                            "a: superseded by "}));
  });
}

TEST_CASE("hook: a run that is skipped in a cooldown has no holder") {
  on_each_engine([](const Place& place) {
    CHECK(place.dlock({"run", "-q", "-k", "a", "--min-hold", "10m", "--", "true"}).exit_code == 0);
    CHECK(run(place, {"-n", "-k", "a", "--", "true"}).exit_code == 75);
    const auto told = all_events(place);
    REQUIRE(told.size() == 1);
    CHECK(has_all(told[0], {"not-acquired a exit=75 ", "holder= ", "kept taken by --min-hold"}));
  });
}

TEST_CASE("hook: is called for a run that fails before COMMAND runs") {
  const Place place(Engine::local);
  CHECK(run(place, {"-k", "b", "-k", "a", "--server", "unix:///no/such", "--", "true"}).exit_code ==
        69);
  const auto unreachable = new_events(place);
  REQUIRE(unreachable.size() == 1);
  CHECK(has_all(unreachable[0],
                {"error b a exit=69 fence= holder= reason=", "where=unix:///no/such"}));

  CHECK(run(place, {"-k", "a", "--", "no-such-command"}).exit_code == 127);
  const auto missing = new_events(place);
  REQUIRE(missing.size() == 2);
  CHECK(missing[0].starts_with("acquired a exit= "));
  CHECK(has_all(missing[1], {"error a exit=127 ", "reason=cannot run \"no-such-command\""}));

  CHECK(run(place, {"-k", "a", "-t", "nonsense", "--", "true"}).exit_code == 64);
  const auto unusable = new_events(place);
  REQUIRE(unusable.size() == 1);
  CHECK(has_all(unusable[0], {"error a exit=64 ", "reason=--ttl: ", "nonsense"}));
}

TEST_CASE("hook: is not called for a signal that ends the wait") {
  const Place place(Engine::local);
  const auto holder = place.hold("a");
  auto waiter = place.start({"run", "-q", "-k", "a", "--hook", reporting, "--", "true"},
                            {.cwd = place.dir().path()});
  REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
  waiter.signal(SIGTERM);
  CHECK(waiter.wait().signal == SIGTERM);
  CHECK(all_events(place).size() == 1);
}

TEST_CASE("hook: is called by acquire, and by release for each key") {
  on_each_engine([](const Place& place) {
    const auto acquired = in_place(place, {"acquire"}, {"-k", "b", "-k", "a", "-t", "1m", "--env"});
    CHECK(acquired.exit_code == 0);
    const auto of_acquire = new_events(place);
    REQUIRE(of_acquire.size() == 1);
    const auto lines = lines_of(acquired.out);
    REQUIRE(lines.size() == 3);
    const std::string token = lines[0].substr(lines[0].find('=') + 1);
    const std::string fences = lines[1].substr(lines[1].find('=') + 1);
    CHECK(of_acquire[0] ==
          "acquired b a exit=0 fence=" + fences + " holder= reason= where=" + place.url());

    CHECK(in_place(place, {"acquire", "-q"}, {"-w", "0.2", "-k", "a", "-t", "1m"}).exit_code == 75);
    const auto late = new_events(place);
    REQUIRE(late.size() == 2);
    CHECK(late[0].starts_with("waiting a exit= "));
    CHECK(late[1].starts_with("not-acquired a exit=75 "));
    CHECK(has_all(late[1], {"@", "reason=not acquired within "}));

    CHECK(place.dlock({"release", "-k", "a", "--token", token}).exit_code == 0);
    CHECK(in_place(place, {"release"}, {"-k", "a", "-k", "b", "--token", token}).exit_code == 79);
    const auto of_release = new_events(place);
    REQUIRE(of_release.size() == 2);
    CHECK(has_all(of_release[0], {"lost a exit=79 ", "reason=a is not held by this token"}));
    CHECK(of_release[1] == "released b exit=0 fence= holder= reason= where=" + place.url());
  });
}

TEST_CASE("hook: acquire and release call it for their errors") {
  const Place place(Engine::local);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"acquire", "-t", "1m"}, {"release", "--token", "T"}}) {
    CHECK(in_place(place, command, {"-k", "a", "--server", "unix:///no/such"}).exit_code == 69);
    const auto told = new_events(place);
    REQUIRE(told.size() == 1);
    CHECK(has_all(told[0], {"error a exit=69 ", " where=unix:///no/such"}));
  }
  CHECK(in_place(place, {"acquire"}, {"-k", "a", "--attach", "99999999"}).exit_code == 64);
  CHECK(has_all(all_events(place).at(0), {"error a exit=64 ", "reason=--attach: "}));
}

TEST_CASE("hook: the one in the configuration file is that of run, acquire and release") {
  const Place place(Engine::local);
  write_file(place.dir() / "dlock.conf", "hook = " + reporting + "\n");
  const auto result = place.shell(R"(export DLOCK_CONFIG=dlock.conf
      "$D" run -k a -- true; T=$("$D" acquire -k a -t 1m); "$D" release -k a --token "$T"
      "$D" acquire -q -k a -t 1m; "$D" release -q --force a; "$D" release -k a --token '')");
  CHECK(result.exit_code == 0);
  std::string names;
  for (const std::string& event : all_events(place))
    names += event.substr(0, event.find(' ')) + " ";
  CHECK(names == "acquired released acquired released acquired ");
  check_message(place.dlock({"release", "--force", "a", "--hook", "true"}), 64,
                "--force and --hook exclude each other");
}

TEST_CASE("hook: acquire --attach does not wait for the script, nor does the hook keep it") {
  const Place place(Engine::redis);
  const auto result = place.shell(R"(
      T=$("$D" acquire -k a --attach $$ --hook 'echo $DLOCK_EVENT >>events' 2>&1)
      cat events; "$D" release -k a --token "$T" && echo released)");
  CHECK(result.out == "acquired\nreleased\n");
}

TEST_CASE("hook: that of acquire and release has the signals that dlock found") {
  const Place place(Engine::local);
  const auto result = place.shell(R"(
      export DLOCK_CONFIG=dlock.conf
      echo 'hook = grep SigIgn /proc/self/status >>ignored' >dlock.conf
      grep SigIgn /proc/self/status >plain
      T=$("$D" acquire -k a -t 1m); "$D" release -k a --token "$T")");
  CHECK(result.exit_code == 0);
  const std::string plain = read_file(place.dir() / "plain");
  CHECK(read_file(place.dir() / "ignored") == plain + plain);
}

}  // namespace
}  // namespace dlock::test
