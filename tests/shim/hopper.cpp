// hopper CHAINS SECONDS: starts CHAINS processes; until the time is over, each process only forks a
// successor in a session of its own, and exits.
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace {

long seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

[[noreturn]] void hop_until(long end) {
  while (seconds_now() < end) {
    if (fork() > 0) break;
    setsid();
  }
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const long end = seconds_now() + std::atol(argv[2]);
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    if (fork() == 0) hop_until(end);
  }
  pause();
}
