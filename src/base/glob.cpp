#include "base/glob.hpp"

#include <fnmatch.h>

#include <algorithm>

namespace dlock {

bool matches_any(const std::string& text, const std::vector<std::string>& globs) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
    return fnmatch(glob.c_str(), text.c_str(), 0) == 0;
  });
}

}  // namespace dlock
