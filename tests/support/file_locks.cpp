#include "support/file_locks.hpp"

#include <sys/stat.h>

#include <fstream>

#include "base/error.hpp"

namespace dlock::test {

long queued_at_file(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) throw_errno("cannot look at " + path);
  const std::string inode = ":" + std::to_string(info.st_ino) + " ";
  std::ifstream locks("/proc/locks");
  long count = 0;
  for (std::string line; std::getline(locks, line);) {
    const bool waits = line.find("->") != std::string::npos;
    if (waits && line.find(inode) != std::string::npos) ++count;
  }
  return count;
}

}  // namespace dlock::test
