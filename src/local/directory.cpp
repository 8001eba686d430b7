#include "local/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

/// Whether `path` is a file of /proc with nothing mounted over it: containers mount a boot id of
/// their own.
bool is_of_the_kernel(const char* path) {
  struct statfs system {};
  struct statx file {};
  return statfs(path, &system) == 0 && system.f_type == PROC_SUPER_MAGIC &&
         statx(AT_FDCWD, path, 0, 0, &file) == 0 &&
         (file.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0;
}

constexpr const char* acl_name = "system.posix_acl_access";
/// The version of the format precedes the entries: 2, in the byte order of x86.
constexpr std::size_t acl_head = 4;

/// An entry of an access control list, in the kernel's format (acl(5), linux/posix_acl_xattr.h).
struct AclEntry {
  enum Tag : std::uint16_t { owner = 1, user = 2, own_group = 4, group = 8, mask = 16, other = 32 };
  std::uint16_t tag;
  std::uint16_t bits;
  std::uint32_t id;
};

/// A user who may read a file can lock it and block all users of the key. Therefore users who may
/// write to the directory get both rights, and others none.
std::uint16_t rights_on_file(unsigned of_directory) { return (of_directory & 2) != 0 ? 6 : 0; }

/// Creates a directory unless it exists; false, with errno, if that fails. Sets the mode, because a
/// umask such as 0177 would create a directory that its owner cannot enter.
bool make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) return errno == EEXIST;
  return chmod(path.c_str(), 0700) == 0;
}

/// Creates the directory and its missing parents. False, with errno, if one of them cannot be
/// created.
bool make_with_parents(const std::string& path) {
  if (make_directory(path)) return true;
  const auto slash = path.find_last_of('/');
  if (errno != ENOENT || slash == std::string::npos || slash == 0) return false;
  return make_with_parents(path.substr(0, slash)) && make_directory(path);
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  return name[0] != '\0' ? percent_encoded(name, "/") : "localhost";
}

Fd open_directory(const std::string& path, int more_flags) {
  return Fd(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | more_flags));
}

void check_own(const std::string& path, const struct stat& info) {
  const bool foreign = info.st_uid != geteuid();
  if (!foreign && (info.st_mode & 022) == 0) return;
  throw Error(ErrorKind::host_refused, escaped(path) +
                                           (foreign ? " belongs to another user: remove it"
                                                    : " may be written by others: chmod 700 it") +
                                           ", or name a directory with --server local:/dir");
}

}  // namespace

std::uint64_t boot_hash() {
  static const std::uint64_t hash = [] {
    constexpr auto path = "/proc/sys/kernel/random/boot_id";
    const std::string id = is_of_the_kernel(path) ? file_text(path) : "";
    return id.empty() ? 0 : fnv1a(id);
  }();
  return hash;
}

std::string host_id(const std::string& machine_id_file) {
  const std::string text = file_text(machine_id_file);
  const std::string id = text.substr(0, text.find_first_of("\r\n")).substr(0, HOST_NAME_MAX);
  return id.empty() ? host_name() : percent_encoded(id, "/.");
}

std::string directory_of_host(const std::string& of_machine, std::uint64_t boot,
                              const std::string& name) {
  const std::string mark = of_machine + "/.host";
  const std::string of_boot = std::to_string(boot) + " ";
  const std::string own = of_boot + name;
  char text[PATH_MAX];
  const ssize_t got = readlink(mark.c_str(), text, sizeof text);
  const std::string found(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  // The name is not enough to tell hosts apart: a container may have another name than its host.
  if (found == own || boot == 0 || (got < 0 && errno != ENOENT)) return of_machine;
  if (found.empty()) {
    if (!make_with_parents(of_machine) || symlink(own.c_str(), mark.c_str()) == 0) {
      return of_machine;
    }
    // Another process was first, on this host or another. On a file system without symbolic links,
    // the directory counts as unshared.
    return errno == EEXIST ? directory_of_host(of_machine, boot, name) : of_machine;
  }
  if (!found.starts_with(of_boot) && !found.ends_with(" " + name)) return of_machine + "-" + name;
  const std::string next = mark + "-" + std::to_string(getpid());
  if (symlink(own.c_str(), next.c_str()) == 0) rename(next.c_str(), mark.c_str());
  return of_machine;
}

std::string default_directory() {
  const uid_t uid = geteuid();
  if (uid == 0) return "/run/dlock";
  // No thread runs yet, or none that looks up users.
  const passwd* entry = getpwuid(uid);  // NOLINT(concurrency-mt-unsafe)
  if (entry == nullptr || entry->pw_dir == nullptr || entry->pw_dir[0] != '/') {
    throw Error(ErrorKind::host_refused, "the user database names no home directory for user " +
                                             std::to_string(uid) +
                                             ": name a directory with --server local:/dir");
  }
  const std::string of_machine =
      std::string(entry->pw_dir) + "/.local/state/dlock/" + host_id("/etc/machine-id");
  return directory_of_host(of_machine, boot_hash(), host_name());
}

Directory::Directory(const DirectorySettings& settings) : path_(settings.path), own_(settings.own) {
  // The last component of an own directory must not be a link that another user has created.
  const int more_flags = own_ ? O_NOFOLLOW : 0;
  fd_ = open_directory(path_, more_flags);
  if (!fd_ && own_ && errno == ENOENT) {
    // Users of services, such as www-data, have a home that does not exist or is not theirs.
    if (!make_with_parents(path_)) {
      throw Error(ErrorKind::host_refused,
                  "cannot make the lock directory " + escaped(path_) + ": " + std::strerror(errno) +
                      ": name one this user may write to, with --server local:/dir");
    }
    fd_ = open_directory(path_, more_flags);
  }
  if (!fd_ || fstat(fd_.get(), &status_) != 0) {
    throw_errno("cannot use the lock directory " + escaped(path_));
  }
  if (own_) {
    check_own(path_, status_);
    return;
  }
  char list[4096];
  const ssize_t length = getxattr(path_.c_str(), acl_name, list, sizeof list);
  if (length > 0) acl_.assign(list, static_cast<std::size_t>(length));
}

std::vector<std::string> Directory::names(std::size_t most) const {
  const int fd = openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd < 0 ? nullptr : fdopendir(fd), closedir);
  if (!stream) throw_errno("cannot read the lock directory " + escaped(path_));
  std::vector<std::string> names;
  while (names.size() < most) {
    const dirent* entry = readdir(stream.get());  // NOLINT(concurrency-mt-unsafe)
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  return names;
}

std::string Directory::shown(const std::string& name) const { return escaped(path_ + "/" + name); }

/// The ACL for a file of `group`, with an entry for each user and group in the directory's ACL.
std::string Directory::acl_of_file(gid_t group) const {
  std::vector<AclEntry> named((acl_.size() - std::min(acl_head, acl_.size())) / sizeof(AclEntry));
  if (!named.empty()) std::memcpy(named.data(), &acl_[acl_head], named.size() * sizeof(AclEntry));
  unsigned of_group = status_.st_mode >> 3;  // with an ACL: the mask
  const unsigned mask = of_group;
  for (const AclEntry& entry : named) {
    if (entry.tag == AclEntry::own_group) of_group = entry.bits & mask;
  }
  const auto of_others = rights_on_file(status_.st_mode);
  const auto of_own_group = group == status_.st_gid ? rights_on_file(of_group) : of_others;
  constexpr std::uint32_t no_id = UINT32_MAX;
  std::vector<AclEntry> entries{
      {AclEntry::owner, 6, no_id},
      {AclEntry::user, rights_on_file(status_.st_mode >> 6), status_.st_uid}};
  const auto take_over = [&](AclEntry::Tag tag) {
    for (const AclEntry& entry : named) {
      if (entry.tag != tag || (tag == AclEntry::user && entry.id == status_.st_uid)) continue;
      entries.push_back({tag, rights_on_file(entry.bits & mask), entry.id});
    }
  };
  take_over(AclEntry::user);
  entries.push_back({AclEntry::own_group, of_own_group, no_id});
  entries.push_back({AclEntry::group, rights_on_file(of_group), status_.st_gid});
  take_over(AclEntry::group);
  entries.push_back({AclEntry::mask, 6, no_id});
  entries.push_back({AclEntry::other, of_others, no_id});
  return std::string("\2\0\0\0", acl_head) +
         std::string(reinterpret_cast<const char*>(entries.data()),
                     entries.size() * sizeof(AclEntry));
}

void Directory::share(int file) const {
  if (own_) return;
  // Only root can change the owner.
  if (fchown(file, status_.st_uid, status_.st_gid) != 0) {
    [[maybe_unused]] const int known_below = fchown(file, static_cast<uid_t>(-1), status_.st_gid);
  }
  struct stat made {};
  if (fstat(file, &made) != 0) return;
  const bool mode_says_all = acl_.empty() && made.st_gid == status_.st_gid &&
                             (status_.st_uid == 0 || made.st_uid == status_.st_uid);
  if (!mode_says_all) {
    const std::string acl = acl_of_file(made.st_gid);
    if (fsetxattr(file, acl_name, acl.data(), acl.size(), 0) == 0) return;
  }
  // With an ACL the group bits are the mask, and another group must not get the group's rights.
  const bool group_fits = made.st_gid == status_.st_gid && acl_.empty();
  const auto of_group = group_fits ? rights_on_file(status_.st_mode >> 3) : 0U;
  const mode_t mode = 0600U | of_group << 3 | rights_on_file(status_.st_mode);
  if (fchmod(file, mode) != 0) throw_errno("cannot set the mode of a file in " + escaped(path_));
}

}  // namespace dlock
