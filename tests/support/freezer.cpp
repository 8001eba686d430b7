#include "support/freezer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "base/error.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

struct Mount {
  const char* dir;
  bool version_2;
};

constexpr Mount mounts[] = {
    {"/sys/fs/cgroup", true}, {"/sys/fs/cgroup/unified", true}, {"/sys/fs/cgroup/freezer", false}};

std::string name_of_a_new_one() {
  static std::atomic<int> count = 0;
  return "/dlock-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

}  // namespace

std::optional<Freezer> Freezer::make() {
  for (const Mount& mount : mounts) {
    const std::string dir = mount.dir + name_of_a_new_one();
    if (mkdir(dir.c_str(), 0755) != 0) continue;
    const std::string knob = dir + (mount.version_2 ? "/cgroup.freeze" : "/freezer.state");
    if (access(knob.c_str(), W_OK) == 0) return Freezer(dir, mount.version_2);
    rmdir(dir.c_str());
  }
  return std::nullopt;
}

Freezer::Freezer(std::string dir, bool version_2)
    : dir_(std::move(dir)),
      version_2_(version_2),
      members_(open((dir_ + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC)) {}

Freezer::~Freezer() {
  if (members_) eventually([this] { return rmdir(dir_.c_str()) == 0; });
}

void Freezer::join() const { [[maybe_unused]] const auto joined = write(members_.get(), "0", 1); }

bool Freezer::is(const std::string& state) const {
  if (!version_2_) return read_file(dir_ + "/freezer.state") == state + "\n";
  const bool frozen = read_file(dir_ + "/cgroup.events").find("frozen 1") != std::string::npos;
  return frozen == (state == "FROZEN");
}

void Freezer::freeze() const {
  write_file(dir_ + (version_2_ ? "/cgroup.freeze" : "/freezer.state"),
             version_2_ ? "1" : "FROZEN");
  if (!eventually([this] { return is("FROZEN"); }))
    throw Error(Trouble::bug, dir_ + " does not freeze");
}

void Freezer::thaw() const {
  write_file(dir_ + (version_2_ ? "/cgroup.freeze" : "/freezer.state"),
             version_2_ ? "0" : "THAWED");
}

}  // namespace dlock::test
