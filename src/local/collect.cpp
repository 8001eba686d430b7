#include "local/collect.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <random>

#include "base/error.hpp"
#include "local/key_file.hpp"
#include "local/latch_file.hpp"
#include "local/open_key.hpp"
#include "local/wake_fifo.hpp"

namespace dlock {
namespace {

constexpr std::size_t most_names_looked_at = 64;
constexpr std::time_t fence_life_seconds = 7 * 24 * 3600;
/// A FIFO is created shortly before it is opened.
constexpr std::time_t mailbox_youth_seconds = 60;

void collect_key(const Directory& directory, const std::string& name) {
  constexpr auto use = KeyFile::Use::change;
  const CallOptions at_once{BootClock::now(), -1};
  try {
    if (is_latch_file_name(name)) {
      auto file = LatchFile::open_file(directory, name, use, at_once);
      if (file && !file->latch) file->remove();
    } else {
      auto key = OpenKey::open_file(directory, name, use, Token{}, at_once);
      if (key && key->is_unused()) key->remove();
    }
  } catch (const Error&) {
    // The file is in use, foreign, or not ours to open; that does not concern the current request.
  }
}

/// A random sample of the names that dlock creates and removes. A directory keeps its order, so a
/// fixed choice would always return the same names.
std::vector<std::string> some_names_in(const Directory& directory) {
  auto names = directory.names();
  std::erase_if(names, [](const std::string& name) {
    return !is_mailbox_name(name) && !is_key_file_name(name) && !is_latch_file_name(name);
  });
  std::minstd_rand random(static_cast<std::uint32_t>(BootClock::now().time_since_epoch().count()));
  std::vector<std::string> some;
  std::sample(names.begin(), names.end(), std::back_inserter(some), most_names_looked_at, random);
  return some;
}

}  // namespace

void collect_garbage(const Directory& directory) {
  // A user who may not list the directory leaves the cleanup to others.
  if (faccessat(directory.fd(), ".", R_OK, AT_EACCESS) != 0) return;
  const auto now = std::time(nullptr);
  for (const std::string& name : some_names_in(directory)) {
    const bool mailbox = is_mailbox_name(name);
    struct stat info {};
    if (fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const auto age = now - info.st_mtime;
    if (mailbox && age > mailbox_youth_seconds && is_gone(directory, name)) {
      remove_mailbox(directory, name);
    }
    if (!mailbox && age > fence_life_seconds) collect_key(directory, name);
  }
}

}  // namespace dlock
