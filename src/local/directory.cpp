#include "local/directory.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "base/error.hpp"
#include "base/escape.hpp"

namespace dlock {
namespace {

constexpr mode_t group_bits = 0060;

/// False, with errno, if it cannot be made. A umask such as 0177 would leave a directory that its
/// owner cannot enter.
bool make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) return errno == EEXIST;
  return chmod(path.c_str(), 0700) == 0;
}

/// False, with errno, if a directory on the way cannot be made.
bool make_with_parents(const std::string& path) {
  if (make_directory(path)) return true;
  const auto slash = path.find_last_of('/');
  if (errno != ENOENT || slash == std::string::npos || slash == 0) return false;
  return make_with_parents(path.substr(0, slash)) && make_directory(path);
}

Fd open_directory(const std::string& path, int more_flags) {
  return Fd(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | more_flags));
}

void check_own(const std::string& path, const struct stat& info) {
  if (info.st_uid != geteuid()) {
    throw Error(ErrorKind::host_refused,
                escaped(path) +
                    " belongs to another user: remove it, or name a directory with "
                    "--server local:/dir");
  }
  if ((info.st_mode & 022) != 0) {
    throw Error(ErrorKind::host_refused,
                escaped(path) +
                    " may be written by others: chmod 700 it, or name a directory with "
                    "--server local:/dir");
  }
}

}  // namespace

std::string host_id(const std::string& machine_id_file) {
  char text[HOST_NAME_MAX + 1] = {};
  ssize_t got = -1;
  if (const Fd fd(open(machine_id_file.c_str(), O_RDONLY | O_CLOEXEC)); fd) {
    got = read(fd.get(), text, HOST_NAME_MAX);
  }
  const std::string id(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  const auto end = id.find_first_of("\r\n");
  if (!id.empty() && end != 0) return percent_encoded(id.substr(0, end), "/.");
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  return name[0] != '\0' ? percent_encoded(name, "/") : "localhost";
}

std::string default_directory(bool root, const std::string& home, const std::string& host) {
  if (root) return "/run/dlock";
  return home + "/.local/state/dlock/" + host;
}

std::string default_directory() {
  const uid_t uid = geteuid();
  if (uid == 0) return default_directory(true, "", "");
  // No thread runs yet, or none that looks up users.
  const passwd* entry = getpwuid(uid);  // NOLINT(concurrency-mt-unsafe)
  if (entry == nullptr || entry->pw_dir == nullptr || entry->pw_dir[0] != '/') {
    throw Error(ErrorKind::host_refused, "the user database names no home directory for user " +
                                             std::to_string(uid) +
                                             ": name a directory with --server local:/dir");
  }
  return default_directory(false, entry->pw_dir, host_id("/etc/machine-id"));
}

Directory::Directory(const DirectorySettings& settings) : path_(settings.path), own_(settings.own) {
  // The last part of an own directory must not be a link that another has laid.
  const int more_flags = own_ ? O_NOFOLLOW : 0;
  fd_ = open_directory(path_, more_flags);
  if (!fd_ && own_ && errno == ENOENT) {
    // Users of services, such as www-data, have a home that is not there or not theirs.
    if (!make_with_parents(path_)) {
      throw Error(ErrorKind::host_refused, "cannot make the lock directory " + escaped(path_) +
                                               ": " + std::strerror(errno) +
                                               ": name one this user may write to, with "
                                               "--server local:/dir");
    }
    fd_ = open_directory(path_, more_flags);
  }
  struct stat info {};
  if (!fd_ || fstat(fd_.get(), &info) != 0) {
    throw_errno("cannot use the lock directory " + escaped(path_));
  }
  if (own_) check_own(path_, info);
  mode_ = info.st_mode & 0666;
  group_ = info.st_gid;
}

std::string Directory::shown(const std::string& name) const { return escaped(path_ + "/" + name); }

void Directory::share(int file) const {
  if (own_) return;
  struct stat info {};
  if (fstat(file, &info) != 0) return;
  // A user who may read a file can lock it, and so hold up all who use the key.
  const mode_t of_writers = (mode_ & 0222) << 1;
  mode_t mode = (mode_ & (0222 | of_writers)) | 0600;
  // In a group we are not of, the group's rights would go to a group of ours instead.
  if (info.st_gid != group_ && fchown(file, static_cast<uid_t>(-1), group_) != 0) {
    mode &= ~group_bits;
  }
  if (fchmod(file, mode) != 0) throw_errno("cannot set the mode of a file in " + escaped(path_));
}

}  // namespace dlock
