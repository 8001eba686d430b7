#pragma once

#include <string>

#include "support/process.hpp"

namespace dlock::test {

/// A user of this machine that a server runs as where the test is root, which servers refuse.
class ServiceUser {
 public:
  /// The user whom the server's package makes; nobody else is it unless the test is root.
  explicit ServiceUser(std::string name) : name_(std::move(name)) {}

  /// For a process of this user: both outputs in one; if the test dies it gets the signal
  /// `on_death`.
  ProcessOptions options(int on_death) const;
  /// Gives a directory to the user.
  void own(const std::string& directory) const;

 private:
  std::string name_;
};

}  // namespace dlock::test
