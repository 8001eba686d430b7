#pragma once

#include <string>

namespace dlock::test {

/// A directory of the test's own, 0700, gone with everything in it when the object goes. Its path
/// is short, so that a socket in it fits into sun_path.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  /// The path of `name` in it; nothing is created.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace dlock::test
