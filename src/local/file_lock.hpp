#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/wait.hpp"

namespace dlock {

struct OpenedFile {
  Fd fd;                 ///< empty: errno says why
  bool created = false;  ///< the file was created, or could not be
};

/// Opens a file of dlock in `directory`, which other users may be able to change: never through a
/// symbolic link, and without blocking at a FIFO. `access` is O_RDONLY or O_RDWR; with `create`, a
/// missing file is created with this mode.
OpenedFile open_file(int directory, const std::string& name, int access,
                     std::optional<mode_t> create);

/// Locks an open file description with flock(2); the caller unlocks it. Processes that find it
/// locked queue in the kernel, which serves them in order: a hundred polling processes would take
/// all processor time, and some of them would starve. False at the deadline or when cancelled.
/// `where` names the file in messages. Throws Error{host_refused} if the file system has no locks.
bool lock_file(int fd, const CallOptions& call_options, const std::string& where);

}  // namespace dlock
