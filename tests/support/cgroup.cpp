#include "support/cgroup.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/privileges.hpp"

namespace dlock::test {
namespace {

/// The mount point of cgroup v2, or of a v1 hierarchy with `controller`.
std::string mounted_at(const std::string& controller) {
  std::ifstream mounts("/proc/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string device;
    std::string folder;
    std::string type;
    std::string options;
    fields >> device >> folder >> type >> options;
    if (controller.empty() && type == "cgroup2") return folder;
    const bool named = ("," + options + ",").find("," + controller + ",") != std::string::npos;
    if (!controller.empty() && type == "cgroup" && named) return folder;
  }
  return "";
}

}  // namespace

TestCgroup::TestCgroup(const std::string& controller) {
  static std::atomic<int> count{0};
  const std::string root = mounted_at(controller);
  if (root.empty()) return;
  const std::string path =
      root + "/dlock-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  if (mkdir(path.c_str(), 0755) != 0) return;
  path_ = path;
  if (!controller.empty()) return;
  for (const char* file : {"", "/cgroup.procs", "/cgroup.subtree_control"}) {
    if (chown((path + file).c_str(), nobody, nobody) == 0) continue;
    rmdir(path.c_str());
    path_.clear();
    return;
  }
}

TestCgroup::~TestCgroup() {
  if (path_.empty()) return;
  write("freezer.state", "THAWED");
  write("cgroup.kill", "1");
  eventually([this] { return rmdir(path_.c_str()) == 0; });
}

bool TestCgroup::can_write(const std::string& file) const {
  return !path_.empty() && access((path_ + "/" + file).c_str(), W_OK) == 0;
}

void TestCgroup::write(const std::string& file, const std::string& word) const {
  if (can_write(file)) std::ofstream(path_ + "/" + file) << word;
}

std::optional<Freezer> Freezer::make() {
  auto group = std::make_unique<TestCgroup>("");
  if (group->can_write("cgroup.freeze")) return Freezer(std::move(group), true);
  group = std::make_unique<TestCgroup>("freezer");
  if (group->can_write("freezer.state")) return Freezer(std::move(group), false);
  return std::nullopt;
}

Freezer::Freezer(std::unique_ptr<TestCgroup> group, bool version_2)
    : group_(std::move(group)),
      version_2_(version_2),
      members_(open((group_->path() + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC)) {}

void Freezer::join() const { [[maybe_unused]] const auto joined = ::write(members_.get(), "0", 1); }

bool Freezer::is_frozen() const {
  if (!version_2_) return read_file(group_->path() + "/freezer.state") == "FROZEN\n";
  return read_file(group_->path() + "/cgroup.events").find("frozen 1") != std::string::npos;
}

void Freezer::freeze() const {
  group_->write(version_2_ ? "cgroup.freeze" : "freezer.state", version_2_ ? "1" : "FROZEN");
  if (!eventually([this] { return is_frozen(); }))
    throw Error(ErrorKind::bug, group_->path() + " does not freeze");
}

void Freezer::thaw() const {
  group_->write(version_2_ ? "cgroup.freeze" : "freezer.state", version_2_ ? "0" : "THAWED");
}

}  // namespace dlock::test
