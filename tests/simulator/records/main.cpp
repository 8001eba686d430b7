// Runs many schedules of clients that share a record: records [--schedules N] [--seed N] [--flaw
// 0..3] [--weakened]. Exit status 0: no fault was found; with --weakened: a fault was found.

#include <sys/random.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/wait.hpp"
#include "simulator/records/schedule.hpp"

namespace {

dlock::sim::Chance randomness(1);

}  // namespace

extern "C" int clock_gettime(clockid_t, timespec* now) noexcept {
  const auto since = dlock::sim::now_in_schedule.time_since_epoch();
  now->tv_sec = std::chrono::floor<std::chrono::seconds>(since).count();
  now->tv_nsec = (since % std::chrono::seconds(1)).count();
  return 0;
}

extern "C" ssize_t getrandom(void* bytes, size_t size, unsigned) {
  for (size_t i = 0; i < size; ++i) {
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(randomness.next());
  }
  return static_cast<ssize_t>(size);
}

namespace dlock {

int poll_until(std::span<pollfd>, Deadline deadline) {
  sim::now_in_schedule = std::max(sim::now_in_schedule, deadline);
  return 0;
}

bool readable(int) { return false; }

bool sleep_until(Deadline deadline, int) { return poll_until({}, deadline) > 0; }

}  // namespace dlock

int main(int argc, char** argv) {
  using namespace dlock::sim;
  std::uint64_t schedules = 1000, seed = 1;
  PlaceFlaw flaw = PlaceFlaw::none;
  bool weakened = false;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&] { return std::strtoull(i + 1 < argc ? argv[++i] : "0", nullptr, 10); };
    if (std::strcmp(argv[i], "--schedules") == 0)
      schedules = number();
    else if (std::strcmp(argv[i], "--seed") == 0)
      seed = number();
    else if (std::strcmp(argv[i], "--flaw") == 0)
      flaw = static_cast<PlaceFlaw>(number());
    else if (std::strcmp(argv[i], "--weakened") == 0)
      weakened = true;
  }
  for (std::uint64_t i = 0; i < schedules; ++i) {
    randomness = Chance(seed + i);
    const std::string fault = RecordSchedule(seed + i, flaw).run();
    if (fault.empty()) continue;
    std::printf("schedule %llu: %s\n", static_cast<unsigned long long>(seed + i), fault.c_str());
    return weakened ? 0 : 1;
  }
  if (!weakened)
    std::printf("%llu schedules: nothing found\n", static_cast<unsigned long long>(schedules));
  return weakened ? 1 : 0;
}
