#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/fd.hpp"

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

}  // namespace dlock
