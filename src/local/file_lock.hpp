#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/wait.hpp"

namespace dlock {

struct OpenedFile {
  Fd fd;                 ///< none: errno says why
  bool created = false;  ///< or was to be
};

/// A file of locks or seals in `directory`, which others may be able to write: never through a
/// symbolic link, and without waiting at a FIFO. `access` is O_RDONLY or O_RDWR; with a mode a file
/// that is not there is made.
OpenedFile open_file(int directory, const std::string& name, int access,
                     std::optional<mode_t> create);

/// Locks an open file with flock(2) for its open file description; KeyFile calls it, and unlocks
/// it. The processes that find it locked queue in the kernel, which serves them in order: a hundred
/// of them that look again and again would leave the processor to nobody, and some of them out.
/// `where` names the file in messages. Throws Error{unavailable} at the deadline, for then a
/// process inside was stopped; Error{interrupted}; Error{host_refused} if the file system has no
/// locks.
void lock_file(int fd, const CallOptions& call_options, const std::string& where);

}  // namespace dlock
