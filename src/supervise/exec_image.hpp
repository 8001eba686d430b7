#pragma once

#include <string>
#include <vector>

#include "supervise/program.hpp"

namespace dlock {

/// A Program as execve(2) wants it, made before there is a child: afterwards nothing may allocate.
/// It looks along PATH and gives a script without `#!` to /bin/sh, as execvp(3) does.
class ExecImage {
 public:
  explicit ExecImage(const Program& program);
  ExecImage(const ExecImage&) = delete;
  ExecImage& operator=(const ExecImage&) = delete;

  /// For the child: does not return unless it fails, with what execvp(3) would leave in errno,
  /// which stays as it was.
  int execute();

 private:
  int try_to_execute(const std::string& path);

  std::vector<std::string> arguments_;
  std::vector<std::string> additions_;  ///< to dlock's own environment
  std::vector<std::string> paths_;      ///< where the program may be, in the order of PATH
  std::vector<const char*> argv_;
  std::vector<const char*> shell_argv_;  ///< /bin/sh, a path, the arguments
  std::vector<const char*> envp_;
};

}  // namespace dlock
