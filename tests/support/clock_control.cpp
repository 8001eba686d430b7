#include "support/clock_control.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace dlock::test {
namespace {

constexpr std::size_t shared_size = 2 * sizeof(std::int64_t);

std::int64_t* map_shared(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ftruncate(file.get(), shared_size) < 0) throw_errno(path);
  void* page = mmap(nullptr, shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) throw_errno("mmap " + path);
  return static_cast<std::int64_t*>(page);
}

}  // namespace

ShimClock::ShimClock(bool runs) : runs_(runs), shared_(map_shared(dir_ / "clock")) {
  shared_[1] = runs ? 1 : 0;
  set(wall_now().time_since_epoch());
}

ShimClock::~ShimClock() { munmap(shared_, shared_size); }

std::int64_t ShimClock::beneath() const {
  return runs_ ? wall_now().time_since_epoch().count() : 0;
}

microseconds ShimClock::now() const { return microseconds(shared().load() + beneath()); }

void ShimClock::set(microseconds since_epoch) { shared().store(since_epoch.count() - beneath()); }

void ShimClock::advance(microseconds by) { shared().fetch_add(by.count()); }

std::map<std::string, std::string> ShimClock::environment() const {
  return {{"LD_PRELOAD", DLOCK_CLOCK_SHIM}, {"CLOCK_SHIM_FILE", dir_ / "clock"}};
}

}  // namespace dlock::test
