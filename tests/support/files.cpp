#include "support/files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "support/eventually.hpp"

namespace dlock::test {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_errno("reading " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) throw_errno("writing " + path);
}

void replace_file(const std::string& path, std::string_view text) {
  const std::string beside = path + ".new";
  write_file(beside, text);
  if (std::rename(beside.c_str(), path.c_str()) != 0) throw_errno("replacing " + path);
}

bool wait_for_file(const std::string& path, milliseconds within) {
  return eventually([&] { return access(path.c_str(), F_OK) == 0; }, within);
}

std::size_t count_lines(std::string_view text) {
  const auto ends = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  return ends + (text.empty() || text.back() == '\n' ? 0 : 1);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

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
