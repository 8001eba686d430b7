#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace dlock {

/// Identifies this boot of the machine: a hash of the kernel's boot id; 0 if the kernel's cannot be
/// read, as where /proc lacks it or a container has mounted another one over it.
std::uint64_t boot_hash();

/// Which directory holds the locks.
struct DirectorySettings {
  std::string path;
  /// The caller's own: made if it is missing, and refused unless only the caller may write there.
  /// Otherwise one that must exist, and serves all who may write there.
  bool own = false;
};

/// `/run/dlock` for root, else `.local/state/dlock/HOST` in the home directory that the user
/// database names: the same place from cron, login and su, whatever their environment.
std::string default_directory();

/// The same for a given user on a given host.
std::string default_directory(bool root, const std::string& home, const std::string& host);

/// What tells this host from others that share a home directory: what stands in
/// `machine_id_file`, or the host name if that is not there; fit for a file name.
std::string host_id(const std::string& machine_id_file);

/// `of_machine`, or `of_machine-NAME` where a host of another boot and another name was the first
/// to use that: hosts that were made from one image have one machine id. A link in it says of which
/// host it is; one that was renamed or has restarted stays the same. `boot` is 0 if it is unknown.
std::string directory_of_host(const std::string& of_machine, std::uint64_t boot,
                              const std::string& name);

/// An open lock directory. Throws Error{host_refused} if it cannot be used.
class Directory {
 public:
  explicit Directory(const DirectorySettings& settings);

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  bool own() const { return own_; }
  /// `DIR/name`, escaped for a message.
  std::string shown(const std::string& name) const;

  /// Gives a new file owner, group and permissions of the directory, less execution: each user that
  /// may write to the directory may use the file, also where that takes an access control list.
  void share(int file) const;

 private:
  std::string acl_of_file(gid_t group) const;

  std::string path_;
  bool own_;
  Fd fd_;
  mode_t mode_ = 0;
  uid_t owner_ = 0;
  gid_t group_ = 0;
  std::string acl_;  ///< as the kernel gives it; empty if the mode says all
};

}  // namespace dlock
