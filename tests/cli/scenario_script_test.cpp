#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "support/one_of_tries.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

/// Checks each line of a script; one that fails exits with its line number.
void a_script_holds_between_commands(const Scene& scene) {
  Process script = scene.start_shell(
      "T=$(\"$DLOCK\" acquire -k k -t 60) || exit 1\n"
      "\"$DLOCK\" run -n -q -k k -- true; [ $? = 75 ] || exit 2\n"
      "\"$DLOCK\" renew -k k --token \"$T\" -t 90 || exit 3\n"
      "\"$DLOCK\" release -k k --token wrong 2>/dev/null; [ $? = 79 ] || exit 4\n"
      "\"$DLOCK\" inspect -q k || exit 5\n"
      "DLOCK_TOKEN=$T \"$DLOCK\" release -k k || exit 6\n"
      "\"$DLOCK\" release -k k --token \"$T\" 2>/dev/null; [ $? = 79 ] || exit 7\n"
      "\"$DLOCK\" renew -k k --token \"$T\" 2>/dev/null; [ $? = 79 ] || exit 8\n"
      "\"$DLOCK\" run -n -k k -- true || exit 9\n"
      "U=$(\"$DLOCK\" acquire -n -k k -t 60) || exit 10\n"
      "\"$DLOCK\" release -k k --token \"$T\" 2>/dev/null; [ $? = 79 ] || exit 11\n"
      "\"$DLOCK\" release -k k --token \"$U\" || exit 12\n");
  check_quiet(script.wait());
  CHECK(scene.kept() == scene.may_stay({"k"}));
}

/// Whether two waiters acquire the lock in turn, as soon as the ttl of an unrenewed lock ends.
bool is_had_at_the_end_of_the_ttl(const Scene& scene) {
  const auto asked = BootClock::now();
  const Result token = scene.run({"acquire", "-k", "k", "-t", "6s"});
  const auto answered = BootClock::now();
  if (token.exit_code == 69) return false;
  CHECK(token.exit_code == 0);
  const std::string script = "\"$STAMP\" \"$LOG\" start k $i; \"$STAMP\" \"$LOG\" end k $i";
  const auto next = [&](std::size_t i) {
    const std::string number = std::to_string(i);
    Process waiter =
        scene.start({"run", "-k", "k", "--", "sh", "-c", "i=" + number + "; " + script});
    REQUIRE(eventually([&] { return scene.waiting("k") == i || !waiter.running(); }));
    return waiter;
  };
  Process first = next(1);
  // On a busy machine, the ttl may end before both wait.
  if (!first.running()) return false;
  Process second = next(2);
  if (!first.running()) return false;
  CHECK(first.wait().exit_code == 0);
  CHECK(second.wait().exit_code == 0);
  CHECK(order_of(scene.log()) == first_numbers(2));
  const Deadline start{std::chrono::nanoseconds(tenures(scene.log()).front().start_ns)};
  CHECK(start - asked >= milliseconds(6000));
  const std::string text = token.out.substr(0, token.out.find('\n'));
  CHECK(scene.run({"renew", "-k", "k", "--token", text}).exit_code == 79);
  CHECK(scene.kept() == scene.may_stay({"k"}));
  return start - answered <= milliseconds(6000) + stretched(milliseconds(1000));
}

/// In one of three tries at least, as a busy machine may start the next one late.
template <typename SomeScene>
void a_hold_ends_with_its_ttl() {
  CHECK(in_one_of(3, [] { return is_had_at_the_end_of_the_ttl(SomeScene()); }));
}

long resident_kb(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  return -1;
}

void holder_and_waiter_are_small(const Scene& scene) {
  Process holder = scene.hold("k", "go");
  Process waiter = scene.queue_up("k", 1, "true");
  for (const pid_t pid : {holder.pid(), waiter.pid()}) {
    CHECK(resident_kb(pid) > 0);
    if (!sanitized) CHECK(resident_kb(pid) < 6 * 1024);
  }
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  CHECK(waiter.wait().exit_code == 0);
}

}  // namespace

TEST_CASE("local: a script acquires, renews and releases, and an old token does nothing") {
  a_script_holds_between_commands(LocalScene());
}

TEST_CASE("Redis: a script acquires, renews and releases, and an old token does nothing") {
  a_script_holds_between_commands(RedisScene());
}

TEST_CASE("local: what a script has acquired ends with its ttl, and the next follow") {
  a_hold_ends_with_its_ttl<LocalScene>();
}

TEST_CASE("Redis: what a script has acquired ends with its ttl, and the next follow") {
  a_hold_ends_with_its_ttl<RedisScene>();
}

TEST_CASE("local: a holder and a waiter need less than 6 MB each") {
  holder_and_waiter_are_small(LocalScene());
}

TEST_CASE("Redis: a holder and a waiter need less than 6 MB each") {
  holder_and_waiter_are_small(RedisScene());
}

}  // namespace dlock::test
