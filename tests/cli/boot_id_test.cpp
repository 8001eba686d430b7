#include <doctest/doctest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "place.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/skip.hpp"

using namespace dlock;
using namespace dlock::test;

namespace {

const std::string boot_id = "/proc/sys/kernel/random/boot_id";

/// A mount namespace with another boot id than the host, or with none: `mounts` sets it up, and
/// `unshare` gets `flags`.
struct Container {
  std::string name;
  std::string flags;
  std::string mounts;

  /// A shell command that runs `script` in it; exits with 99 if it cannot be set up.
  std::string around(const std::string& script) const {
    return "exec unshare -m " + flags + " sh -c '{ " + mounts + "; } || exit 99; " + script + "'";
  }
};

const std::string other_boot_id =
    "echo 11111111-2222-4333-8444-555555555555 >id && "
    "mount --bind id " +
    boot_id;

const std::vector<Container> containers = {
    {"a boot id of its own", "", other_boot_id},
    {"a boot id and processes of its own", "--pid --fork --kill-child --mount-proc", other_boot_id},
    {"another file of /proc as boot id", "",
     "mount --bind /proc/sys/kernel/random/uuid " + boot_id},
    {"only the processes in /proc", "", "mount -t proc -o subset=pid none /proc"},
    {"an empty /proc", "", "mount -t tmpfs none /proc"},
    {"processes of its own and the /proc of the host", "--pid --fork --kill-child", other_boot_id},
};

/// Whether the container can be set up here; reports a failure as skipped.
bool can_be_made(const Place& place, const Container& container) {
  return !skip_if(place.shell(container.around("true")).exit_code != 0,
                  "no mount here: " + container.name);
}

void on_each_container(const std::function<void(const Place&, const Container&)>& test,
                       const std::vector<Container>& tested = containers) {
  for (const Container& container : tested) {
    CAPTURE(container.name);
    const Place place(Engine::local);
    if (can_be_made(place, container)) test(place, container);
  }
}

/// Holds k until the file `go` exists.
const std::string hold_it =
    R"(rm -f go; "$D" run -k k -- sh -c "echo in; until [ -e go ]; do sleep 0.05; done")";
const std::string try_it = R"("$D" run -n -k k -- echo ran)";

/// Checks that `other` is refused while `holder` holds k.
void excludes(const Place& place, const std::string& holder, const std::string& other) {
  auto holding = place.start_shell(holder);
  REQUIRE(eventually([&] { return holding.out() == "in\n" || !holding.running(); }));
  for (int i = 0; i < 3; ++i) {
    const auto refused = place.shell(other);
    CAPTURE(refused.err);
    CHECK(refused.exit_code == 75);
    CHECK(refused.out == "");
  }
  REQUIRE(holding.running());
  CHECK(eventually([&] { return !place.is_free("k"); }));
  write_file(place.dir() / "go", "");
  CHECK(holding.wait().exit_code == 0);
  CHECK(place.shell(other).out == "ran\n");
}

}  // namespace

TEST_CASE("boot id: a run of the host keeps out a container that sees another one, or none") {
  on_each_container([](const Place& place, const Container& container) {
    excludes(place, hold_it, container.around(try_it));
  });
}

TEST_CASE("boot id: a run in a container that sees another one, or none, keeps out the host") {
  on_each_container([](const Place& place, const Container& container) {
    excludes(place, container.around(hold_it), try_it);
  });
}

TEST_CASE("boot id: two containers, each with a view of its own, keep each other out") {
  const Place place(Engine::local);
  for (std::size_t i = 0; i < containers.size(); ++i) {
    const Container& first = containers[i];
    const Container& second = containers[(i + 1) % containers.size()];
    if (!can_be_made(place, first) || !can_be_made(place, second)) continue;
    CAPTURE(first.name);
    CAPTURE(second.name);
    excludes(place, first.around(hold_it), second.around(try_it));
  }
}

TEST_CASE("boot id: a lease that is looked at by turns from both sides ends, and not too early") {
  constexpr milliseconds lease{3000};
  on_each_container(
      [&](const Place& place, const Container& container) {
        for (const std::string& taker : {std::string(), container.around("")}) {
          const std::string take = R"("$D" acquire -k k -t 3s)";
          const auto began = BootClock::now();
          const auto token = place.shell(taker.empty() ? take : container.around(take));
          REQUIRE(token.exit_code == 0);
          int looks = 0;
          REQUIRE(eventually([&] {
            const auto inside = place.shell(container.around(R"("$D" inspect -k k)"));
            CHECK(inside.exit_code == 0);
            const auto tried = place.shell(++looks % 2 == 0 ? try_it : container.around(try_it));
            CHECK((tried.exit_code == 0 || tried.exit_code == 75));
            return tried.out == "ran\n";
          }));
          CHECK(BootClock::now() - began >= lease - lease / 50);
        }
      },
      {containers[0], containers[4]});
}

TEST_CASE("boot id: who waits in a container is served when the host releases, and the reverse") {
  on_each_container([](const Place& place, const Container& container) {
    const std::string wait = R"("$D" run -w 60s -k k -- echo ran)";
    for (const bool inside : {false, true}) {
      auto holding = place.start_shell(inside ? container.around(hold_it) : hold_it);
      REQUIRE(eventually([&] { return holding.out() == "in\n" || !holding.running(); }));
      auto first = place.start_shell(inside ? wait : container.around(wait));
      REQUIRE(eventually([&] { return place.waiters("k") == 1; }));
      auto second = place.start_shell(inside ? container.around(wait) : wait);
      REQUIRE(eventually([&] { return place.waiters("k") == 2; }));
      write_file(place.dir() / "go", "");
      CHECK(first.wait().out == "ran\n");
      CHECK(second.wait().out == "ran\n");
      CHECK(holding.wait().exit_code == 0);
    }
  });
}

TEST_CASE("boot id: without /proc nobody is let in beside a command that has outlived its dlock") {
  const Place place(Engine::local);
  const Container container{"an empty /proc", "", "mount -t tmpfs none /proc"};
  if (!can_be_made(place, container)) return;
  auto holding = place.start_shell(
      R"(exec "$D" run -t 1s -k k -- sh -c 'sleep 60 & echo $! >survivor; echo in; wait')");
  REQUIRE(eventually([&] { return holding.out() == "in\n"; }));
  holding.signal(SIGKILL);
  Result refused;
  CHECK(eventually([&] {
    refused = place.shell(container.around(try_it));
    CHECK(refused.out == "");
    return refused.exit_code == 71;
  }));
  CAPTURE(refused.err);
  CHECK(is_one_message(refused.err));
  CHECK(holds(refused.err, "k: cannot tell whether the command of"));
  CHECK(holds(refused.err, "/proc is not mounted here"));
  CHECK(place.shell(try_it).exit_code == 75);
  CHECK(place.shell("kill $(cat survivor)").exit_code == 0);
  CHECK(eventually([&] { return place.shell(try_it).out == "ran\n"; }));
  CHECK(place.shell(container.around(try_it)).out == "ran\n");
}

TEST_CASE("boot id: by the /proc of another pid namespace no process is taken for the command's") {
  const Place place(Engine::local);
  const Container container{"", "--pid --fork --kill-child", "true"};
  if (!can_be_made(place, container)) return;
  auto holding = place.start_shell(container.around(
      R"("$D" run -k k --grace 100ms -- sh -c "trap : TERM; echo in; while :; do sleep 1; done")"));
  REQUIRE(eventually([&] { return holding.out() == "in\n"; }));
  CHECK(place.dlock({"release", "-q", "--force", "k"}).exit_code == 0);
  const auto result = holding.wait();
  CHECK(result.exit_code == 79);
  CAPTURE(result.err);
  CHECK(!holds(result.err, "could not kill pid"));
}
