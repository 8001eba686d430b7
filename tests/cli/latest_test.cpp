#include <doctest/doctest.h>
#include <signal.h>

#include "cli/place.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

TEST_CASE("latest: only the newest deployment runs after the present one, and the others say why") {
  on_each_engine([](const Place& place) {
    auto present = place.hold("site", {"--latest"});
    std::vector<Process> deployments;
    auto other = place.start({"run", "-k", "site", "--", "true"});
    REQUIRE(eventually([&] { return place.waiters("site") == 1; }));
    for (int i = 1; i <= 3; ++i) {
      const std::string name = "build-" + std::to_string(i);
      deployments.push_back(
          place.start({"run", "-k", "site", "--latest", "--label", name, "--", "echo", name}));
      REQUIRE(eventually([&] {
        const auto waiters = place.state("site")["waiters"];
        return waiters.size() == 2 && waiters[1]["label"] == name;
      }));
    }
    for (int i = 0; i < 2; ++i) {
      const auto left = deployments[static_cast<std::size_t>(i)].wait();
      CHECK(left.exit_code == 75);
      CHECK(left.out == "");
      CHECK(holds(left.err, "dlock: left the queue after "));
      CHECK(holds(left.err, ": site: superseded by "));
      // A still newer claim may wait by the time it asks for the reason.
      CHECK((holds(left.err, "[build-" + std::to_string(i + 2) + "]") ||
             holds(left.err, "[build-3]")));
    }
    CHECK(present.running());
    present.signal(SIGTERM);
    CHECK(other.wait().exit_code == 0);
    check_ran(deployments.back().wait(), "build-3\n");
    CHECK(place.is_free("site"));
  });
}

TEST_CASE("latest: acquire knows it, -E changes its exit code, and not to wait excludes it") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a");
    auto older = place.start({"run", "-E", "0", "-k", "a", "--latest", "--", "false"});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    auto newer = place.start({"acquire", "-k", "a", "-t", "1m", "--latest"});
    CHECK(older.wait().exit_code == 0);
    REQUIRE(place.dlock({"release", "a", "--token", token}).exit_code == 0);
    CHECK(newer.wait().exit_code == 0);
  });
  const Place place(Engine::local);
  for (const std::vector<std::string>& wait : {std::vector<std::string>{"-n"}, {"-w", "0"}}) {
    auto words = wait;
    words.insert(words.begin(), {"run", "-k", "a", "--latest"});
    words.insert(words.end(), {"--", "true"});
    check_message(place.dlock(words), 64, "--latest");
  }
}

}  // namespace
}  // namespace dlock::test
