#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/temp_dir.hpp"

namespace dlock::test {

/// The ordinary user.
constexpr uid_t nobody = 65534;

/// An ordinary user who starts a program that becomes root, as sudo does. Needs root. The user can
/// enter the directory.
class OrdinaryUser {
 public:
  OrdinaryUser();
  const TempDir& dir() const { return dir_; }
  /// Copies `program` to a path that the user can execute.
  std::string own_copy(const std::string& program) const;
  /// The command that runs `words` as that user.
  static std::vector<std::string> run_as(const std::vector<std::string>& words);
  /// A shell command of the user that ends as `sleep 60` of root.
  std::string sleep_as_root() const;

 private:
  TempDir dir_;
};

/// Why tests that need root cannot run here; empty if they can.
std::string not_root_here();

}  // namespace dlock::test
