#include <doctest/doctest.h>
#include <signal.h>

#include "cli/place.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

/// Leaves a process of its own session behind, which says "in" and stays until the file `go` is
/// there; the command itself exits with 3.
const char* const leaves_a_daemon =
    "(setsid sh -c 'echo in; while [ ! -e go ]; do sleep 0.01; done; echo over' &); exit 3";

/// The same until TERM comes; before, it says its own number.
const char* const leaves_one_to_be_asked =
    "echo $$; (setsid sh -c 'sleep 60 & trap \"kill $!; echo asked; exit\" TERM; echo in;"
    "while :; do wait; done' &); exit 3";

Process start_in(const Place& place, std::vector<std::string> words) {
  ProcessOptions options;
  options.cwd = place.dir().path();
  return place.start(words, options);
}

TEST_CASE("tree: --wait-tree holds until the last descendant has gone, with the command's code") {
  on_each_engine([](const Place& place) {
    auto process =
        start_in(place, {"run", "-k", "a", "--wait-tree", "-t", "1s", "-c", leaves_a_daemon});
    REQUIRE(eventually([&] { return process.out() == "in\n"; }));
    CHECK(place.dlock({"run", "-k", "a", "-w", "1200ms", "--", "true"}).exit_code == 75);
    CHECK(process.running());
    write_file(place.dir() / "go", "");
    const auto result = process.wait();
    CHECK(result.exit_code == 3);
    CHECK(result.out == "in\nover\n");
    CHECK(result.err == "");
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("tree: without --wait-tree the lock follows the command itself") {
  on_each_engine([](const Place& place) {
    auto process = start_in(place, {"run", "-k", "a", "-c", leaves_a_daemon});
    CHECK(process.wait().exit_code == 3);
    CHECK(place.is_free("a"));
    REQUIRE(eventually([&] { return process.out() == "in\n"; }));
    write_file(place.dir() / "go", "");
    CHECK(eventually([&] { return process.out() == "in\nover\n"; }));
  });
}

TEST_CASE("tree: TERM to dlock reaches a daemon that is all that is left") {
  on_each_engine([](const Place& place) {
    auto process = start_in(place, {"run", "-k", "a", "--wait-tree", "-c", leaves_one_to_be_asked});
    REQUIRE(eventually([&] { return process.out().ends_with("in\n"); }));
    REQUIRE(eventually([&] { return !is_alive(std::stoi(process.out())); }));
    process.signal(SIGTERM);
    const auto result = process.wait();
    CHECK(result.exit_code == 3);
    CHECK(result.out.ends_with("in\nasked\n"));
    CHECK(place.is_free("a"));
  });
}

}  // namespace
}  // namespace dlock::test
