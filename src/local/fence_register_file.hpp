#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "local/directory.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The file that remembers the largest fence that a resource has seen: one decimal number and a
/// newline, or nothing before the first fence. It is locked (flock(2)) from open() to the end of
/// its scope, so that one process after the other uses it. That holds on this host: a network file
/// system may not share locks between hosts, nor keep synced data.
class FenceFile {
 public:
  /// Opens the file at `path`; a missing one is created for all users who may write to its
  /// directory. Waits until it is unlocked, and calls `waiting` if that takes longer than a second.
  /// Throws Error{host_refused} if the file is not a plain file (in particular a symbolic link), or
  /// cannot be written.
  static FenceFile open(const std::string& path, const std::function<void()>& waiting);
  /// Opens the file of `resource` in the lock directory of this host.
  static FenceFile open(const DirectorySettings& locks, const LockKey& resource,
                        const std::function<void()>& waiting);

  FenceFile(FenceFile&&) noexcept = default;
  FenceFile& operator=(FenceFile&&) = delete;
  ~FenceFile();

  /// Records `fence` unless a larger one is recorded, and returns the larger of both. After kill -9
  /// or a power cut the file has either the old or the new one. Throws Error{wrong_data} if the
  /// file contains something else, which stays, and Error{host_refused} if it cannot be written.
  Fence record_max(Fence fence);

  /// The path of the file, escaped.
  const std::string& shown() const { return shown_; }

 private:
  FenceFile(Directory directory, std::string name, std::string shown)
      : directory_(std::move(directory)), name_(std::move(name)), shown_(std::move(shown)) {}
  void open_and_lock(const std::function<void()>& waiting);
  void open_or_create();
  bool is_still_there() const;
  std::string read() const;
  std::optional<Fence> recorded(const std::string& content) const;
  void write(const std::string& text) const;
  void sync() const;
  void sync_directory() const;

  Directory directory_;
  std::string name_;
  std::string shown_;
  Fd fd_;
};

}  // namespace dlock
