#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "local/directory.hpp"
#include "lock/store.hpp"

namespace dlock {

/// The file that remembers the largest fence that came to a resource: one decimal number and a
/// newline, nothing in it if none came yet. Locked (flock(2)) from open() until it goes out of
/// scope: one holder of it after the other, on this host; a network file system may know of no
/// locks between hosts, nor keep what it was told to sync.
class FenceFile {
 public:
  /// At `path`, made for all who may write to its directory if it is not there. Waits for whoever
  /// has it locked; `waiting` is called once, from another thread, when that takes longer than a
  /// second. Signals do what they do by default meanwhile. Throws Error{host_refused} for what is
  /// not a plain file, symbolic links above all, or cannot be written.
  static FenceFile open(const std::string& path, const std::function<void()>& waiting);
  /// That of `resource` among the locks of this host.
  static FenceFile open(const DirectorySettings& locks, const LockKey& resource,
                        const std::function<void()>& waiting);

  FenceFile(FenceFile&&) noexcept = default;
  FenceFile& operator=(FenceFile&&) = delete;
  ~FenceFile();

  /// Records `fence`, unless a larger one came before, so that neither kill -9 nor a power cut
  /// leaves anything but the old or the new one; the larger of both. Throws Error{wrong_data} if
  /// something else is in the file, which stays, and Error{host_refused} if it cannot be written.
  Fence record_max(Fence fence);

  /// Its path, escaped.
  const std::string& shown() const { return place_.shown; }

 private:
  struct Place {
    Directory directory;
    std::string name;
    std::string shown;
  };

  static FenceFile open_at(Place place, const std::function<void()>& waiting);
  static Fd open_or_create(const Place& place);

  FenceFile(Place place, Fd fd) : place_(std::move(place)), fd_(std::move(fd)) {}
  void lock(const std::function<void()>& waiting);
  bool is_still_there() const;
  std::string read() const;
  std::optional<Fence> recorded(const std::string& content) const;
  void write(const std::string& text) const;
  void sync() const;
  void sync_directory() const;

  Place place_;
  Fd fd_;
};

}  // namespace dlock
