#include "commands/version.hpp"

namespace dlock {

std::string version_text(std::string_view commit) {
  const std::string inside = DLOCK_LIBRARIES_INSIDE, loaded = DLOCK_LIBRARIES_LOADED;
  std::string text = "dlock " DLOCK_VERSION "\n";
  if (!commit.empty()) text += "commit: " + std::string(commit) + "\n";
  text += "libraries inside: " + inside + "\n";
  if (!loaded.empty()) text += "libraries loaded when needed: " + loaded + "\n";
  return text;
}

}  // namespace dlock
