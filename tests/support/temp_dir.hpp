#pragma once

#include <string>

namespace dlock::test {

/// A directory for one test, with mode 0700; the destructor removes it with its contents. Its path
/// is short, so that a socket in it fits into sun_path.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  /// The path of `name` in the directory; nothing is created.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace dlock::test
