#pragma once

#include <optional>
#include <string>

#include "base/fd.hpp"

namespace dlock::test {

/// A control group of the test's own, which stops all its processes at once without their
/// noticing. Version 2 where it is mounted and writable, else the freezer of version 1.
class Freezer {
 public:
  /// Nothing where this machine or user has neither.
  static std::optional<Freezer> make();
  Freezer(Freezer&&) = default;
  ~Freezer();

  /// For ProcessOptions::before_exec: the calling process joins, and so does all it starts.
  void join() const;
  /// Returns when every process in it stands still.
  void freeze() const;
  void thaw() const;

 private:
  Freezer(std::string dir, bool version_2);
  bool is(const std::string& state) const;

  std::string dir_;
  bool version_2_;
  Fd members_;
};

}  // namespace dlock::test
