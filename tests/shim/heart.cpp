// heart LOG RESOURCE [WORD ...]   the command of a lock's holder: until it is killed, it writes to
// RESOURCE, which refuses smaller fences once a larger one has written, and appends the result to
// LOG, three times a millisecond. Words:
//   stubborn   it ignores TERM, INT and HUP
//   spin       it never sleeps in between
//   calm       it writes only every ten milliseconds
//   daemon     a second process, forked twice and in its own session, writes as well
//   for=20     it ends by itself after 20 milliseconds
#include "support/heart.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <set>
#include <string>

using dlock::test::Beat;
using dlock::test::bits_of_the_count;

namespace {

/// The limit in seconds, so that an aborted test leaves no process behind forever.
constexpr unsigned longest_life = 120;

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

bool write_to(std::int64_t& resource, std::int64_t fence) {
  const std::atomic_ref<std::int64_t> shared(resource);
  std::int64_t found = shared.load();
  while (found >> bits_of_the_count <= fence) {
    const std::int64_t first = fence << bits_of_the_count;
    const bool again = found >> bits_of_the_count == fence;
    const std::int64_t next = again ? first | ((found + 1) % (1 << bits_of_the_count)) : first;
    if (shared.compare_exchange_weak(found, next)) return true;
  }
  return false;
}

void rest(bool spin, bool calm) {
  const std::int64_t pause_ns = calm ? 10'000'000 : 300'000;
  const timespec pause{0, pause_ns};
  if (!spin) {
    nanosleep(&pause, nullptr);
    return;
  }
  const std::int64_t until = now_ns() + pause_ns;
  while (now_ns() < until) {
  }
}

std::int64_t end_ns(const std::set<std::string>& words) {
  const std::string told = "for=";
  const auto found = words.lower_bound(told);
  if (found == words.end() || !found->starts_with(told)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return now_ns() + std::atoll(found->c_str() + told.size()) * 1'000'000;
}

/// Continues in a daemon as well as in the caller.
void split() {
  const pid_t child = fork();
  if (child != 0) {
    waitpid(child, nullptr, 0);
    return;
  }
  setsid();
  if (fork() != 0) _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::set<std::string> words(argv + 3, argv + argc);
  if (words.contains("stubborn")) {
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_IGN);
  }
  if (words.contains("daemon")) split();
  alarm(longest_life);
  const int log = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const int resource = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (log < 0 || resource < 0 || ftruncate(resource, sizeof(std::int64_t)) != 0) return 1;
  void* const page =
      mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, resource, 0);
  const char* const fence = std::getenv("DLOCK_FENCE");
  if (page == MAP_FAILED || fence == nullptr) return 1;
  Beat beat{std::atoll(fence), getpid(), 0, 0, 0};
  for (const std::int64_t end = end_ns(words); now_ns() < end;
       rest(words.contains("spin"), words.contains("calm"))) {
    beat.before_ns = now_ns();
    beat.accepted = write_to(*static_cast<std::int64_t*>(page), beat.fence) ? 1 : 0;
    beat.after_ns = now_ns();
    if (write(log, &beat, sizeof beat) != sizeof beat) return 1;
  }
}
