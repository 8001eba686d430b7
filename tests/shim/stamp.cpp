// stamp                       prints CLOCK_BOOTTIME in nanoseconds
// stamp LOG EVENT KEY [PID]   appends "EVENT KEY PID NANOSECONDS" to LOG in one write; PID is the
//                             calling process if it is left out
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <string>

int main(int argc, char** argv) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const long long ns = now.tv_sec * 1'000'000'000LL + now.tv_nsec;
  if (argc == 1) {
    std::printf("%lld\n", ns);
    return 0;
  }
  if (argc < 4) return 2;
  const std::string pid = argc > 4 ? argv[4] : std::to_string(getppid());
  const std::string line =
      std::string(argv[2]) + " " + argv[3] + " " + pid + " " + std::to_string(ns) + "\n";
  const int log = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const bool written =
      log >= 0 && write(log, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!written) std::perror(argv[1]);
  return written ? 0 : 1;
}
