#include "local/open_file.hpp"

#include <fcntl.h>

#include <cerrno>

namespace dlock {

OpenedFile open_file(int directory, const std::string& name, int access,
                     std::optional<mode_t> create) {
  constexpr int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  while (true) {
    Fd fd(openat(directory, name.c_str(), access | flags));
    if (fd || errno != ENOENT || !create) return {std::move(fd), false};
    // Only now O_CREAT: fs.protected_regular refuses it for others' files in sticky directories.
    fd.reset(openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | flags, *create));
    if (fd || errno != EEXIST) return {std::move(fd), true};
  }
}

}  // namespace dlock
