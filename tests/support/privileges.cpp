#include "support/privileges.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace dlock::test {
namespace {

const std::string nobody = "65534";

std::string program_path(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/bin/", "/usr/sbin/"}) {
    if (access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  return name;
}

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

OrdinaryUser::OrdinaryUser() {
  chmod(dir_.path().c_str(), 0777);
  const std::string becomes_root = own_copy(program_path("setpriv"));
  chmod(becomes_root.c_str(), 04755);
}

std::string OrdinaryUser::own_copy(const std::string& program) const {
  const std::string copy = dir_ / program.substr(program.rfind('/') + 1);
  std::filesystem::copy_file(program, copy, std::filesystem::copy_options::overwrite_existing);
  chmod(copy.c_str(), 0755);
  return copy;
}

std::vector<std::string> OrdinaryUser::run_as(const std::vector<std::string>& words,
                                              const std::string& cgroup) const {
  const std::string enter = cgroup.empty() ? "" : "echo $$ >" + cgroup + "/cgroup.procs; ";
  std::vector<std::string> all{
      "sh", "-c",
      enter + "exec setpriv --reuid=" + nobody + " --regid=" + nobody + " --clear-groups \"$@\"",
      "sh"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::string OrdinaryUser::sleep_as_root() const {
  return dir_ / "setpriv" + " --reuid=0 --regid=0 --clear-groups sleep 60";
}

std::string not_root_here() {
  if (geteuid() != 0) return "not root";
  return program_path("setpriv") == "setpriv" ? "no setpriv" : "";
}

TestCgroup::TestCgroup(const std::string& controller) {
  static std::atomic<int> count{0};
  const std::string root = mounted_at(controller);
  if (root.empty()) return;
  const std::string path =
      root + "/dlock-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  if (mkdir(path.c_str(), 0755) != 0) return;
  path_ = path;
  if (!controller.empty()) return;
  const auto owner = static_cast<uid_t>(std::stoi(nobody));
  for (const char* file : {"", "/cgroup.procs", "/cgroup.subtree_control"}) {
    if (chown((path_ + file).c_str(), owner, owner) != 0) path_.clear();
  }
}

TestCgroup::~TestCgroup() {
  if (path_.empty()) return;
  write("freezer.state", "THAWED");
  write("cgroup.kill", "1");
  for (int i = 0; i < 5000 && rmdir(path_.c_str()) != 0; ++i) usleep(1000);
}

void TestCgroup::write(const std::string& file, const std::string& word) const {
  if (access((path_ + "/" + file).c_str(), W_OK) == 0) std::ofstream(path_ + "/" + file) << word;
}

}  // namespace dlock::test
