#include "supervise/exec_image.hpp"

#include <climits>
#include <cstdlib>
#include <string_view>

namespace dlock {
namespace {

/// Where the C library looks if there is no PATH.
constexpr std::string_view usual_path = "/bin:/usr/bin";

bool is_replaced(const Program& program, std::string_view entry) {
  const auto name = entry.substr(0, entry.find('='));
  for (const auto& added : program.environment) {
    if (added.first == name) return true;
  }
  return false;
}

std::vector<std::string> additions_of(const Program& program) {
  std::vector<std::string> all;
  for (const auto& [name, value] : program.environment) {
    if (value) all.push_back(name + "=" + *value);
  }
  return all;
}

/// An empty part of PATH is the current directory, and one that no path can have is passed over.
std::vector<std::string> paths_of(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return {name};
  const char* set = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  std::string_view left = set != nullptr ? std::string_view(set) : usual_path;
  std::vector<std::string> all;
  while (true) {
    const auto end = left.find(':');
    const auto folder = left.substr(0, end);
    if (folder.size() <= PATH_MAX) {
      all.push_back(folder.empty() ? name : std::string(folder) + "/" + name);
    }
    if (end == std::string_view::npos) return all;
    left.remove_prefix(end + 1);
  }
}

void point_to(const std::vector<std::string>& texts, std::vector<const char*>& pointers) {
  for (const auto& text : texts) pointers.push_back(text.c_str());
  pointers.push_back(nullptr);
}

int execve_error(const char* path, const std::vector<const char*>& argv,
                 const std::vector<const char*>& envp) {
  return static_cast<int>(-raw_syscall(SYS_execve, reinterpret_cast<long>(path),
                                       reinterpret_cast<long>(argv.data()),
                                       reinterpret_cast<long>(envp.data())));
}

/// Whether the program may still stand further along PATH.
bool looks_on_after(int error) {
  return error == ENOENT || error == ENOTDIR || error == EACCES || error == ESTALE ||
         error == ENODEV || error == ETIMEDOUT;
}

}  // namespace

ExecImage::ExecImage(const Program& program)
    : arguments_(program.argv),
      additions_(additions_of(program)),
      paths_(paths_of(arguments_.at(0))),
      shell_argv_{"/bin/sh", nullptr} {
  point_to(arguments_, argv_);
  shell_argv_.insert(shell_argv_.end(), argv_.begin() + 1, argv_.end());
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!is_replaced(program, *entry)) envp_.push_back(*entry);
  }
  point_to(additions_, envp_);
}

int ExecImage::try_to_execute(const std::string& path) {
  const int error = execve_error(path.c_str(), argv_, envp_);
  if (error != ENOEXEC) return error;
  shell_argv_[1] = path.c_str();
  return execve_error("/bin/sh", shell_argv_, envp_);
}

int ExecImage::execute() {
  int error = ENOENT;
  bool forbidden = false;
  for (const auto& path : paths_) {
    error = try_to_execute(path);
    if (!looks_on_after(error)) return error;
    forbidden = forbidden || error == EACCES;
  }
  return forbidden ? EACCES : error;
}

}  // namespace dlock
