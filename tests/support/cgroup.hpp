#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/fd.hpp"

namespace dlock::test {

/// A cgroup that is made and removed, with all that is in it killed; empty path: not possible here.
/// One of v2 is delegated to an ordinary user.
class TestCgroup {
 public:
  /// `controller`: "" for v2, or one of v1's.
  explicit TestCgroup(const std::string& controller);
  TestCgroup(const TestCgroup&) = delete;
  TestCgroup& operator=(const TestCgroup&) = delete;
  ~TestCgroup();
  const std::string& path() const { return path_; }
  bool can_write(const std::string& file) const;
  /// Nothing where that cannot be written.
  void write(const std::string& file, const std::string& word) const;

 private:
  std::string path_;
};

/// A cgroup that stops all its processes at once without their noticing. Version 2 where it is
/// mounted and writable, else the freezer of version 1.
class Freezer {
 public:
  /// Nothing where this machine or user has neither.
  static std::optional<Freezer> make();

  /// For ProcessOptions::before_exec: the calling process joins, and so does all it starts.
  void join() const;
  /// Returns when every process in it stands still.
  void freeze() const;
  void thaw() const;

 private:
  Freezer(std::unique_ptr<TestCgroup> group, bool version_2);
  bool is_frozen() const;

  std::unique_ptr<TestCgroup> group_;
  bool version_2_;
  Fd members_;
};

}  // namespace dlock::test
