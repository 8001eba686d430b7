#include "support/privileges.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace dlock::test {
namespace {

std::string program_path(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/bin/", "/usr/sbin/"}) {
    if (access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  return name;
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

std::vector<std::string> OrdinaryUser::run_as(const std::vector<std::string>& words) {
  const std::string user = std::to_string(nobody);
  std::vector<std::string> all{"setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups"};
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

}  // namespace dlock::test
