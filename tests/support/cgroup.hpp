#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/fd.hpp"

namespace dlock::test {

/// Creates a cgroup; the destructor kills its processes and removes it. The path is empty if this
/// machine does not allow that. A cgroup of v2 is delegated to an ordinary user.
class TestCgroup {
 public:
  /// `controller` is empty for v2, or names a controller of v1.
  explicit TestCgroup(const std::string& controller);
  TestCgroup(const TestCgroup&) = delete;
  TestCgroup& operator=(const TestCgroup&) = delete;
  ~TestCgroup();
  const std::string& path() const { return path_; }
  bool can_write(const std::string& file) const;
  /// Does nothing if the file cannot be written.
  void write(const std::string& file, const std::string& word) const;

 private:
  std::string path_;
};

/// A cgroup that stops all its processes at once, unnoticed by them. Uses version 2 if it is
/// mounted and writable, else the freezer of version 1.
class Freezer {
 public:
  /// Empty if this machine or user has neither version.
  static std::optional<Freezer> make();

  /// For ProcessOptions::before_exec: the calling process joins, with all processes that it starts.
  void join() const;
  /// Returns when every process in the cgroup has stopped.
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
