#include "supervise/kill_cgroup.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <string_view>

#include "base/cut.hpp"
#include "base/process.hpp"

namespace dlock {
namespace {

bool write_word(const std::string& path, const std::string& word) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && write(file.get(), word.data(), word.size()) == static_cast<ssize_t>(word.size());
}

bool marked_as_delegated(const std::string& folder) {
  for (const char* mark : {"user.delegate", "trusted.delegate"}) {
    char value = 0;
    if (getxattr(folder.c_str(), mark, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) parts.push_back(take_until(text, separator));
  return parts;
}

/// Of /proc/self/cgroup; empty if there is none or it lies outside what this namespace shows.
std::string own_cgroup(const std::string& self_cgroup) {
  for (const std::string_view line : split(self_cgroup, '\n')) {
    if (!line.starts_with("0::/")) continue;
    const std::string path(line.substr(3));
    return path.starts_with("/..") ? "" : path;
  }
  return "";
}

}  // namespace

std::string own_cgroup_folder(const std::string& self_cgroup, const std::string& mount_info) {
  const std::string cgroup = own_cgroup(self_cgroup);
  for (const std::string_view line : split(mount_info, '\n')) {
    const auto fields = split(line, ' ');
    const bool is_ours = line.find(" - cgroup2 ") != std::string_view::npos && fields.size() > 4;
    if (cgroup.empty() || !is_ours) continue;
    const std::string root(fields[3] == "/" ? "" : fields[3]);
    const bool shown = (cgroup + "/").starts_with(root + "/");
    if (shown) return std::string(fields[4]) + cgroup.substr(root.size());
  }
  return "";
}

void KillCgroup::make() {
  tried_ = true;
  const std::string self = proc_text("/proc/self/cgroup");
  const std::string folder = own_cgroup_folder(self, proc_text("/proc/self/mountinfo"));
  if (folder.empty()) return;
  const bool managed = access("/run/systemd/system", F_OK) == 0 && own_cgroup(self) != "/";
  if (managed && !marked_as_delegated(folder)) return;
  const std::string path = folder + "/dlock-" + std::to_string(getpid());
  if (mkdir(path.c_str(), 0700) == 0) path_ = path;
}

void KillCgroup::kill(const std::vector<Descendant>& processes) {
  if (!tried_) make();
  if (path_.empty()) return;
  for (const Descendant& each : processes) {
    write_word(path_ + "/cgroup.procs", std::to_string(each.pid));
  }
  write_word(path_ + "/cgroup.kill", "1");
}

KillCgroup::~KillCgroup() {
  if (!path_.empty()) rmdir(path_.c_str());
}

}  // namespace dlock
