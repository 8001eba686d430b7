#pragma once

#include <string>

#include "support/process.hpp"

namespace dlock::test {

/// The user that a server runs as if the test is root, as these servers refuse to run as root.
class ServiceUser {
 public:
  /// `name` is the user that the server's package creates. The user is switched only if the test is
  /// root.
  explicit ServiceUser(std::string name) : name_(std::move(name)) {}

  /// Options for a process of this user: both outputs in one, and the signal `on_death` when the
  /// test dies.
  ProcessOptions options(int on_death) const;
  /// Makes the user the owner of a directory.
  void own(const std::string& directory) const;

 private:
  std::string name_;
};

}  // namespace dlock::test
