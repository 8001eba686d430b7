// The system calls of the real code, as the simulator replaces them: clocks and random numbers
// instead of those of the C library, the descriptors of simulated processes, and the waiting
// functions of base/wait.cpp.

#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <vector>

#include "base/wait.hpp"
#include "simulator/process.hpp"

extern "C" int clock_gettime(clockid_t id, timespec* time) noexcept {
  using dlock::sim::Process;
  Process* const process = Process::running();
  dlock::sim::Span shown{0};
  if (process != nullptr) {
    const dlock::sim::MachineClock& clock = process->clock();
    const auto now = dlock::sim::World::here().now();
    if (id == CLOCK_BOOTTIME) {
      shown = clock.boot(now);
    } else if (id == CLOCK_REALTIME) {
      shown = clock.wall(now);
    } else {
      shown = clock.monotonic(now);
    }
    process->maybe_rest();
  }
  time->tv_sec = shown / std::chrono::seconds(1);
  time->tv_nsec = (shown % std::chrono::seconds(1)).count();
  return 0;
}

extern "C" ssize_t getrandom(void* bytes, size_t size, unsigned int) {
  auto* out = static_cast<unsigned char*>(bytes);
  for (size_t i = 0; i < size; ++i) {
    out[i] = static_cast<unsigned char>(dlock::sim::World::here().chance().next());
  }
  return static_cast<ssize_t>(size);
}

extern "C" int close(int fd) {
  auto* const process = dlock::sim::Process::running();
  if (process == nullptr) return static_cast<int>(syscall(SYS_close, fd));
  process->close(fd);
  return 0;
}

namespace dlock {

using sim::Process;

Event::Event() : fd_(Process::running()->open()) {}

void Event::raise() const { Process::running()->set_event(fd_.get(), true); }

void Event::clear() const { Process::running()->set_event(fd_.get(), false); }

bool Event::raised() const { return readable(fd_.get()); }

AnyOf::AnyOf(std::span<const int> fds) {
  std::vector<int> those;
  std::copy_if(fds.begin(), fds.end(), std::back_inserter(those), [](int fd) { return fd >= 0; });
  epoll_.reset(Process::running()->open(std::move(those)));
}

bool readable(int fd) { return fd >= 0 && Process::running()->raised(fd); }

int poll_until(std::span<pollfd> fds, Deadline deadline) {
  while (true) {
    int ready = 0;
    for (pollfd& each : fds) {
      const bool set = readable(each.fd);
      each.revents = set ? POLLIN : short{0};
      ready += set ? 1 : 0;
    }
    const auto now = BootClock::now();
    if (ready > 0 || now >= deadline) return ready;
    Process::running()->wait(deadline, now);
  }
}

bool sleep_until(Deadline deadline, int cancel_fd) {
  pollfd cancel{cancel_fd, POLLIN, 0};
  return poll_until({&cancel, 1}, deadline) > 0;
}

}  // namespace dlock
