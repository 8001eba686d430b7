#include "support/clock_control.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace dlock::test {
namespace {

std::int64_t* map_shared(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ftruncate(file.get(), sizeof(std::int64_t)) < 0) throw_errno(path);
  void* page =
      mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) throw_errno("mmap " + path);
  return static_cast<std::int64_t*>(page);
}

}  // namespace

ShimClock::ShimClock() : shared_us_(map_shared(dir_ / "clock")) {
  set(wall_now().time_since_epoch());
}

ShimClock::~ShimClock() { munmap(shared_us_, sizeof *shared_us_); }

microseconds ShimClock::now() const { return microseconds(shared().load()); }

void ShimClock::set(microseconds since_epoch) { shared().store(since_epoch.count()); }

void ShimClock::advance(microseconds by) { shared().fetch_add(by.count()); }

std::map<std::string, std::string> ShimClock::environment() const {
  return {{"LD_PRELOAD", DLOCK_CLOCK_SHIM}, {"CLOCK_SHIM_FILE", dir_ / "clock"}};
}

}  // namespace dlock::test
