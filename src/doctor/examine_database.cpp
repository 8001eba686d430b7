#include "doctor/examine_database.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "doctor/ask.hpp"

namespace dlock {
namespace {

constexpr int clock_readings = 5;
/// One percent of this is more than a round trip in a data centre.
constexpr milliseconds pause_for_the_pace{300};

std::chrono::nanoseconds read_database_clock(const DatabaseQuestions& ask, DatabaseFacts& facts) {
  const WallTime here = wall_now();
  const Deadline sent = BootClock::now();
  const microseconds there = ask.clock();
  const Deadline received = BootClock::now();
  facts.clock.push_back({sent, received, here, WallTime(there)});
  return received - sent;
}

void measure(const DatabaseQuestions& ask, DatabaseFacts& facts) {
  facts.connected_in = read_database_clock(ask, facts);
  facts.clock.clear();
  std::vector<std::chrono::nanoseconds> taken;
  for (int i = 0; i < clock_readings; ++i) taken.push_back(read_database_clock(ask, facts));
  std::sort(taken.begin(), taken.end());
  facts.round_trip = taken[clock_readings / 2];
}

}  // namespace

void ask_database(const DatabaseQuestions& ask, const std::string& shown, DatabaseFacts& facts) {
  bool reached = false;
  try {
    measure(ask, facts);
    reached = true;
    ask.settings(facts);
    poll_until({}, later(facts.clock.front().received, pause_for_the_pace));
    read_database_clock(ask, facts);
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    if (kind != ErrorKind::unavailable && kind != ErrorKind::denied) throw;
    const std::string why = bare_trouble(error.what(), shown);
    if (reached) {
      facts.broke_off = why;
    } else {
      facts.unreachable = {why, error.cause()};
      facts.denied = kind == ErrorKind::denied;
    }
  }
}

}  // namespace dlock
