// Runs the quorum store, the acquire loop and the renewal of leases over virtual members, clocks
// and networks, schedule after schedule, until a promise is broken. A number determines a schedule,
// on any machine. The number of the failed schedule is printed, to run it again.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "simulator/chance.hpp"
#include "simulator/schedule.hpp"

namespace {

using dlock::sim::Chance;
using dlock::sim::Outcome;
using dlock::sim::Statistics;

constexpr char usage[] =
    "simulator --schedules N [--seed S]   runs N schedules, the first of them with seed S\n"
    "simulator --seed S                   runs one, and tells its story\n"
    "simulator --schedules N --weakened   as above; a violation is what is expected\n";

/// The seed of a schedule in a series. The first one is `first` itself, so that any schedule can be
/// repeated on its own.
std::uint64_t seed_of(std::uint64_t first, std::uint64_t index) {
  return index == 0 ? first : Chance(first + index).next();
}

/// Prints the last `lines` of the story. Returns whether all was well.
bool print_story(std::uint64_t seed, std::size_t lines) {
  Statistics unused;
  const Outcome outcome = dlock::sim::run_schedule(seed, true, unused);
  const std::size_t left_out = outcome.story.size() - std::min(outcome.story.size(), lines);
  for (std::size_t i = left_out; i < outcome.story.size(); ++i) {
    std::printf("%s\n", outcome.story[i].c_str());
  }
  if (outcome.violation) {
    std::printf("\nviolated with seed %llu: %s\n", static_cast<unsigned long long>(seed),
                outcome.violation->c_str());
  }
  return !outcome.violation;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 1, schedules = 0;
  bool weakened = false;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&] { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (std::strcmp(argv[i], "--seed") == 0) {
      seed = number();
    } else if (std::strcmp(argv[i], "--schedules") == 0) {
      schedules = number();
    } else if (std::strcmp(argv[i], "--weakened") == 0) {
      weakened = true;
    } else {
      std::fputs(usage, stderr);
      return 64;
    }
  }
  if (schedules == 0) {
    return print_story(seed, SIZE_MAX) ? 0 : 1;
  }
  Statistics statistics;
  for (std::uint64_t i = 0; i < schedules; ++i) {
    const std::uint64_t one = seed_of(seed, i);
    const Outcome outcome = dlock::sim::run_schedule(one, false, statistics);
    if (!outcome.violation) continue;
    if (weakened) {
      std::printf("caught by schedule %llu: %s\n", static_cast<unsigned long long>(i + 1),
                  outcome.violation->c_str());
      return 0;
    }
    print_story(one, 200);
    std::printf("again: simulator --seed %llu\n", static_cast<unsigned long long>(one));
    return 1;
  }
  std::fputs(dlock::sim::text_of(statistics).c_str(), stdout);
  return weakened ? 1 : 0;
}
