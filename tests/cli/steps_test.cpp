#include <doctest/doctest.h>
#include <signal.h>

#include <regex>
#include <utility>

#include "cli/place.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/patient_start.hpp"

namespace dlock::test {
namespace {

/// Whether `text` has these lines in this order.
bool tells(const std::string& text, const std::vector<std::string>& patterns) {
  auto from = text.cbegin();
  for (const std::string& pattern : patterns) {
    std::smatch found;
    if (!std::regex_search(from, text.cend(), found, std::regex("dlock: " + pattern + "\n"))) {
      MESSAGE("not told: " << pattern << "\n" << text);
      return false;
    }
    from = found[0].second;
  }
  return true;
}

const std::string in_a_time = R"( in (\d+\.\dms|\d+s))";

TEST_CASE("steps: -v tells each step of a run that waits, and how long it took") {
  on_each_engine([](const Place& place) {
    auto holder = place.hold("a");
    const ProcessOptions there{.cwd = place.dir().path()};
    auto waiter = patient_start(
        [&] {
          return place.start(
              {"run", "-v", "-t", "6s", "-k", "a", "-c", "until [ -e go ]; do sleep 0.01; done"},
              there);
        },
        [&] { return place.waiters("a") == 1; }, "it did not wait");
    holder.signal(SIGTERM);
    const auto renewed = [&] { return holds(waiter.err(), "renewed a for "); };
    if (!place.is_local()) CHECK(eventually([&] { return renewed() || !waiter.running(); }));
    write_file(place.dir() / "go", "");
    const auto result = waiter.wait();
    CHECK(result.exit_code == 0);
    std::vector<std::string> steps{"waiting: a is held by .*",
                                   "asked .* for a" + in_a_time + ": place 1, held by 1 owner, .*",
                                   "told that a is ours" + in_a_time,
                                   "a acquired after .*",
                                   "holding a at .*, fence .*",
                                   "released a" + in_a_time};
    if (place.is_local()) {
      std::swap(steps[0], steps[1]);  // its only request puts it in the queue
    } else {
      steps.insert(steps.begin(), "connected to unix://.*" + in_a_time);
      steps.insert(steps.end() - 1, "renewed a for 6s" + in_a_time);
    }
    CHECK(tells(result.err, steps));
    CHECK(count_lines(place.dlock({"run", "-k", "b", "--", "true"}).err) == 0);
  });
}

TEST_CASE("steps: -v tells them of acquire, renew, inspect and release, and stdout has none") {
  on_each_engine([](const Place& place) {
    const auto taken = place.dlock({"acquire", "-v", "-k", "a", "-t", "1m"});
    CHECK(count_lines(taken.out) == 1);
    CHECK(tells(taken.err, {"asked .* for a" + in_a_time + ": granted, fence \\d+, lease 1m00s"}));
    const std::string token = taken.out.substr(0, taken.out.find('\n'));
    CHECK(!holds(taken.err, token));
    const auto renewed = place.dlock({"renew", "-v", "-k", "a", "--token", token});
    CHECK(tells(renewed.err, {"renewed a for 1m00s" + in_a_time}));
    const auto seen = place.dlock({"inspect", "-v", "--json", "a"});
    CHECK(count_lines(seen.out) == 1);
    CHECK(tells(seen.err, {"asked .* how things stand" + in_a_time}));
    const auto released = place.dlock({"release", "-v", "-k", "a", "--token", token});
    CHECK(tells(released.err, {"released a" + in_a_time}));
    CHECK(!holds(released.err + renewed.err, token));
  });
}

}  // namespace
}  // namespace dlock::test
