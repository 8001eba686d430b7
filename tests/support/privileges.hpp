#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/temp_dir.hpp"

namespace dlock::test {

/// The ordinary user.
constexpr uid_t nobody = 65534;

/// An ordinary user who starts a program that becomes root, as sudo does; needs to be root. The
/// directory is open to that user.
class OrdinaryUser {
 public:
  OrdinaryUser();
  const TempDir& dir() const { return dir_; }
  /// A copy of `program` that the user can reach.
  std::string own_copy(const std::string& program) const;
  /// `words` as that user, from within `cgroup` (a folder) if there is one.
  std::vector<std::string> run_as(const std::vector<std::string>& words,
                                  const std::string& cgroup = "") const;
  /// A shell command of the user's that is root's `sleep 60` in the end.
  std::string sleep_as_root() const;

 private:
  TempDir dir_;
};

/// Why what root can do cannot be tried here; empty if it can.
std::string not_root_here();

}  // namespace dlock::test
