#pragma once

#include <functional>
#include <optional>
#include <string>

#include "local/directory.hpp"
#include "local/locked_file.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The file that remembers the largest fence that a resource has seen: one decimal number and a
/// newline, or nothing before the first fence. It is locked (flock(2)) from open() to the end of
/// its scope, so that only one process at a time uses it. All processes must be on one host: a
/// network file system may not share locks between hosts, or may lose synced data.
class FenceFile {
 public:
  /// Opens the file at `path`; creates a missing one for all users who may write to its
  /// directory. Waits until it is unlocked, and calls `waiting` if that takes longer than a second.
  /// Throws Error{host_refused} if the file is not a plain file (in particular a symbolic link), or
  /// cannot be written.
  static FenceFile open(const std::string& path, const std::function<void()>& waiting);
  /// Opens the file of `resource` in the lock directory of this host.
  static FenceFile open(const DirectorySettings& locks, const LockKey& resource,
                        const std::function<void()>& waiting);

  /// Records `fence` unless a larger one is recorded, and returns the larger of both. After kill -9
  /// or a power cut the file has the old or the new fence. Throws Error{wrong_data} if the
  /// file contains something else, which stays, and Error{host_refused} if it cannot be written.
  Fence record_max(Fence fence);

  /// The path of the file, escaped.
  const std::string& shown() const { return file_.where(); }

 private:
  static FenceFile open_in(Directory directory, const std::string& name, const std::string& shown,
                           const std::function<void()>& waiting);

  FenceFile(Directory directory, LockedFile file)
      : directory_(std::move(directory)), file_(std::move(file)) {}
  std::optional<Fence> recorded(const std::string& content) const;
  void sync() const;
  void sync_directory() const;

  Directory directory_;
  LockedFile file_;
};

}  // namespace dlock
