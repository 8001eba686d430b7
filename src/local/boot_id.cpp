#include "local/boot_id.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <string>

#include "base/hash.hpp"
#include "base/process.hpp"

namespace dlock {
namespace {

/// A file of /proc that nothing is mounted over: containers mount a boot id of their own.
bool is_of_the_kernel(const char* path) {
  struct statfs system {};
  struct statx file {};
  return statfs(path, &system) == 0 && system.f_type == PROC_SUPER_MAGIC &&
         statx(AT_FDCWD, path, 0, 0, &file) == 0 &&
         (file.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0;
}

}  // namespace

std::uint64_t boot_hash() {
  static const std::uint64_t hash = [] {
    constexpr auto path = "/proc/sys/kernel/random/boot_id";
    const std::string id = is_of_the_kernel(path) ? proc_text(path) : "";
    return id.empty() ? 0 : fnv1a(id);
  }();
  return hash;
}

}  // namespace dlock
