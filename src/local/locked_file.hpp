#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "base/wait.hpp"
#include "local/directory.hpp"

namespace dlock {

/// Locks an open file description with flock(2). Processes that find it locked queue in the kernel,
/// which serves them in order: a hundred polling processes would take all processor time, and some
/// of them would starve. False at the deadline or when cancelled. `where` names the file in
/// messages. Throws Error{host_refused} if the file system has no locks.
bool lock_file(int fd, const CallOptions& call_options, const std::string& where);

/// A plain file of dlock in a directory that other users may be able to change. It is locked from
/// open() to the end of the object's scope, so keep the scope short.
class LockedFile {
 public:
  enum class Use {
    read,    ///< no permission to write needed
    change,  ///< for reading and writing
    create,  ///< like `change`, but open() creates a missing file
  };

  /// Returns nothing if there is no such file. `where` names it in messages. Throws
  /// Error{host_refused} unless it is a plain file (in particular not a symbolic link or a FIFO).
  /// Throws as CallOptions says if another process keeps it locked.
  static std::optional<LockedFile> open(const Directory& directory, const std::string& name,
                                        std::string where, Use use,
                                        const CallOptions& call_options);

  LockedFile(LockedFile&&) noexcept = default;
  LockedFile& operator=(LockedFile&&) = delete;
  ~LockedFile();

  int fd() const { return fd_.get(); }
  /// Whether open() created it.
  bool created() const { return created_; }
  /// The status of the file (fstat(2)) when it was locked.
  const struct stat& info() const { return info_; }
  /// Its name for messages.
  const std::string& where() const { return where_; }

  /// Reads up to `length` bytes from `offset` on into `content`, which is resized.
  void read(std::size_t offset, std::size_t length, std::string& content) const;
  void write(std::string_view bytes, std::size_t offset) const;

 private:
  LockedFile(Fd fd, bool created, std::string where)
      : fd_(std::move(fd)), created_(created), where_(std::move(where)) {}
  bool lock(const Directory& directory, const std::string& name, const CallOptions& call_options);

  Fd fd_;
  bool created_;
  std::string where_;
  struct stat info_ {};
};

}  // namespace dlock
