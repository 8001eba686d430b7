#include "supervise/kill_tree.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string_view>

#include "base/process.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

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

namespace {

/// How long killed processes are waited for. Freeing many gigabytes takes seconds; what is stuck
/// in the kernel longer than this is reported.
constexpr std::chrono::seconds max_reap_wait{5};

/// While the tree dies, its processes end without telling us unless they are our children.
constexpr milliseconds sweep_interval{5};

bool ended_within(const Child& child, milliseconds limit) {
  pollfd end[] = {{child.fd(), POLLIN, 0}};
  poll_until(end, later(BootClock::now(), limit));
  return child.ended();
}

bool is_gone(Child& child) {
  return child.ended() && child.tree.beside(child.pid()) == ProcessTree::Beside::nobody;
}

void reap_all_until(Child& child, Deadline give_up) {
  while (child.tree.beside(child.pid()) == ProcessTree::Beside::unclear) {
    if (BootClock::now() >= give_up) return;
  }
}

}  // namespace

/// One sweep ends most trees. Whoever forks faster than a sweep is stopped first, and whoever may
/// not be signalled is killed by cgroup where that is possible.
std::vector<Survivor> kill_tree(Child& child, Signals& signals) {
  const Deadline give_up = later(BootClock::now(), max_reap_wait);
  const Hurry hurry;
  KillCgroup last_resort;
  child.tree.release_spares();
  std::optional<KernelReaps> kernel_reaps;
  for (bool first = true; true; first = false) {
    kill(child.pid(), SIGKILL);
    // Not before the child has ended: its number stays taken. From then on there are no zombies,
    // which a family that forks on and on makes faster than dlock reaps them.
    if (!kernel_reaps && ended_within(child, sweep_interval)) {
      kernel_reaps.emplace();
      reap_all_until(child, give_up);
    }
    if (!first) child.tree.freeze();
    const auto refused = child.tree.signal(SIGKILL);
    if (!refused.empty()) last_resort.kill(refused);
    if (is_gone(child)) return {};
    if (BootClock::now() >= give_up) return child.tree.survivors();
    pollfd fds[] = {{signals.fd(), POLLIN, 0}};
    poll_until(fds, later(BootClock::now(), sweep_interval));
    while (const auto event = signals.take()) {
      if (event->number == SIGCHLD) break;  // the next may be there already, and so without end
    }
  }
}

}  // namespace dlock
