#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "support/chance.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

/// The numbers 1 to `count`, one a line; each `stretch` of them is shuffled.
std::string shuffled(int count, int stretch) {
  std::vector<int> fences(static_cast<std::size_t>(count));
  std::iota(fences.begin(), fences.end(), 1);
  const auto seed = seed_of_this_run();
  MESSAGE("DLOCK_TEST_SEED=" << seed);
  Chance chance(seed);
  for (auto from = fences.begin(); from != fences.end(); from += stretch) {
    std::shuffle(from, from + stretch, chance.engine());
  }
  std::string lines;
  for (const int fence : fences) lines += std::to_string(fence) + "\n";
  return lines;
}

/// Starts a guard for each line of `order`, all at once. Their messages are in `err` afterwards.
Result crowd_of(const Scene& scene, const std::string& order, const std::string& guard,
                const std::string& command) {
  write_file(scene.path("order"), order);
  return scene
      .start_shell("while read -r n; do \"$DLOCK\" guard -q " + guard + " --fence $n -- " +
                   command + " 2>>err & done <order; wait")
      .wait(milliseconds(300'000) * slower);
}

std::vector<long> numbers_in(const std::string& text) {
  std::vector<long> all;
  std::istringstream lines(text);
  for (long number = 0; lines >> number;) all.push_back(number);
  return all;
}

/// The fences that were written to the key of the resource, in the server's order.
std::vector<long> recorded_by(const RedisServer& server, const std::string& key) {
  std::vector<long> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(server.dir().path())) {
    if (entry.path().extension() != ".aof") continue;
    std::istringstream log(read_file(entry.path()));
    for (std::string line; std::getline(log, line);) {
      if (line != key + "\r") continue;
      std::getline(log, line);  // the length
      std::getline(log, line);
      all.push_back(std::stol(line));
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a thousand guards of one file: those that run do so one by one in growing order") {
  // The first order lets only a few of them run, the second a good many.
  for (const auto& [guards, stretch] : {std::pair{1000, 1000}, {300, 20}}) {
    const LocalScene scene;
    // Each command writes its fence when it begins and when it ends.
    const Result result = crowd_of(scene, shuffled(guards, stretch), "--state seal",
                                   "sh -c 'echo $0; echo $0' $n >>log");
    CHECK(result.err == "");
    const auto ran = numbers_in(read_file(scene.log()));
    const std::size_t commands = ran.size() / 2;
    REQUIRE(commands >= 1);
    REQUIRE(ran.size() % 2 == 0);
    CHECK(std::is_sorted(ran.begin(), ran.end()));
    for (std::size_t i = 0; i < ran.size(); i += 2) CHECK(ran[i] == ran[i + 1]);
    CHECK(ran.back() == guards);
    CHECK(read_file(scene.path("seal")) == std::to_string(guards) + "\n");
    const std::string err = read_file(scene.path("err"));
    CHECK(times(err, "not run\n") == static_cast<std::size_t>(guards) - commands);
    CHECK(count_lines(err) == static_cast<std::size_t>(guards) - commands);
    MESSAGE(commands << " of " << guards << " ran");
  }
}

TEST_CASE("two hundred guards of one name on a server: it records them in growing order") {
  constexpr int guards = 200;
  RedisOptions options;
  options.config = {"appendonly yes", "appendfsync no"};
  const RedisScene scene(options);
  const Result result =
      crowd_of(scene, shuffled(guards, 20), "--state-key store", "sh -c 'echo $0' $n >>log");
  CAPTURE(result.err);
  CHECK(result.err == "");
  auto ran = numbers_in(read_file(scene.log()));
  const auto recorded = recorded_by(scene.server, "dlock:{store}:seal");
  CHECK(recorded.size() >= 1);
  CHECK(std::is_sorted(recorded.begin(), recorded.end()));
  std::sort(ran.begin(), ran.end());
  CHECK(ran == recorded);
  MESSAGE(ran.size() << " of " << guards << " ran");
  CHECK(ran.back() == guards);
  CHECK(times(read_file(scene.path("err")), "not run\n") == guards - ran.size());
}

}  // namespace dlock::test
