#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace dlock {

/// Identifies this boot of the machine: a hash of the kernel's boot id, or 0 if dlock cannot read
/// that id, for example without /proc or in a container that has mounted another id over it.
std::uint64_t boot_hash();

/// The location of the lock directory.
struct DirectorySettings {
  std::string path;
  /// True for the caller's own directory: Directory creates it if it is missing, and refuses it if
  /// others own it or may write to it. Otherwise it must exist, and serves all who may write to it.
  bool own = false;
};

/// `/run/dlock` for root, otherwise `.local/state/dlock/HOST` in the home directory from the user
/// database, so that it is the same in cron, login shells and su, whatever their environment.
std::string default_directory();

/// Distinguishes this host from others that share a home directory: the content of
/// `machine_id_file`, or the host name if that file is missing; usable as a file name.
std::string host_id(const std::string& machine_id_file);

/// Returns `of_machine`, or `of_machine-NAME` if a host with another boot id and another name used
/// `of_machine` first: hosts cloned from one image share a machine id. A link in the directory
/// names the boot id and name of its host. A host keeps the directory after a reboot or a rename,
/// which changes only one of them. `boot` is 0 if it is unknown.
std::string directory_of_host(const std::string& of_machine, std::uint64_t boot,
                              const std::string& name);

/// An open lock directory. Throws Error{host_refused} if it cannot be used.
class Directory {
 public:
  explicit Directory(const DirectorySettings& settings);

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  bool own() const { return own_; }
  /// Up to `most` names of files in the directory, unordered, and the same names at each call.
  /// Throws Error{host_refused} if the directory cannot be read.
  std::vector<std::string> names(std::size_t most = SIZE_MAX) const;
  /// `DIR/name`, escaped for a message.
  std::string shown(const std::string& name) const;

  /// Gives a new file the owner, group and permissions of the directory, without execution, so that
  /// each user who may write to the directory may use the file. If necessary, the file gets an
  /// access control list.
  void share(int file) const;

 private:
  std::string acl_of_file(gid_t group) const;

  std::string path_;
  bool own_;
  Fd fd_;
  struct stat status_ {};
  std::string acl_;  ///< in the kernel's format; empty if the mode says everything
};

}  // namespace dlock
