// The command under the locks of a measurement: records its start and the moment before its end.
// mark LOG NUMBER MICROSECONDS

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

void say(int log, char what, const char* number) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  char line[64];
  const int size = std::snprintf(line, sizeof line, "%c %s %lld\n", what, number,
                                 static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  if (write(log, line, static_cast<std::size_t>(size)) != size) _exit(71);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const int log = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  say(log, 'B', argv[2]);
  const long us = std::atol(argv[3]);
  const timespec span{us / 1'000'000, us % 1'000'000 * 1000};
  if (us > 0) nanosleep(&span, nullptr);
  say(log, 'E', argv[2]);
}
