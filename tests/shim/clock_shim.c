/* Preloaded into a server under test: the wall clock answers from a file.
 *
 * CLOCK_SHIM_FILE names a file of two numbers of 8 bytes, written by the test while the server
 * runs: microseconds, and whether they are to be added to the machine's wall clock (1) or are the
 * time since the epoch themselves (0). gettimeofday, time and clock_gettime(CLOCK_REALTIME and
 * CLOCK_REALTIME_COARSE) follow it; every other clock stays the kernel's. Without the variable or
 * the file nothing changes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* shared_us;
static const size_t shared_size = 2 * sizeof(int64_t);

__attribute__((constructor)) static void map_clock(void) {
  const char* path = getenv("CLOCK_SHIM_FILE");
  const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void* page = mmap(NULL, shared_size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) shared_us = page;
}

/* The system call itself and not dlsym(RTLD_NEXT): the server's allocator reads clocks before
 * dlsym may be used. */
static int kernel_clock(clockid_t clock, struct timespec* now) {
  return (int)syscall(SYS_clock_gettime, clock, now);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (!wall || shared_us == NULL) return kernel_clock(clock, now);
  int64_t us = __atomic_load_n(shared_us, __ATOMIC_ACQUIRE);
  if (__atomic_load_n(shared_us + 1, __ATOMIC_ACQUIRE) != 0) {
    const int code = kernel_clock(CLOCK_REALTIME, now);
    if (code != 0) return code;
    us += (int64_t)now->tv_sec * 1000000 + now->tv_nsec / 1000;
  }
  now->tv_sec = us / 1000000;
  now->tv_nsec = us % 1000000 * 1000;
  return 0;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out != NULL) *out = exact.tv_sec;
  return exact.tv_sec;
}
