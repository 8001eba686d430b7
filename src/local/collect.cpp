#include "local/collect.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <random>

#include "base/error.hpp"
#include "base/text.hpp"
#include "local/dead_holders.hpp"
#include "local/key_file.hpp"
#include "local/latch_file.hpp"
#include "local/open_key.hpp"
#include "local/wake_fifo.hpp"
#include "rule/table_text.hpp"

namespace dlock {
namespace {

constexpr std::size_t most_names_looked_at = 64;
constexpr std::time_t fence_life_seconds = 7 * 24 * 3600;
/// A mailbox is made shortly before it is opened.
constexpr std::time_t mailbox_youth_seconds = 60;

bool is_free(KeyFile& file, const Directory& directory, const std::string& name) {
  const auto text = file.read();
  if (text.empty()) return true;
  LockTable table = parse_table(text, directory.shown(name)).table;
  const Now now = now_here();
  if (is_of_earlier_boot(table, file.written_in(), directory, now.lease_clock)) {
    restart_after_boot(table, now.lease_clock);
  }
  refresh(table, directory, now.lease_clock);
  return table.live_holds(now).empty() && !any_waiter_lives(table, directory);
}

bool has_ended(KeyFile& file, const Directory& directory, const std::string& name) {
  const Now now = now_here();
  const auto named = read_latch(file, now, directory.shown(name));
  return !named || named->latch.ends <= now.lease_clock;
}

void collect_key(const Directory& directory, const std::string& name) {
  try {
    auto file =
        KeyFile::open(directory, name, KeyFile::Use::change, CallOptions{BootClock::now(), -1});
    if (!file) return;
    const bool latch = is_latch_file_name(name);
    if (latch ? has_ended(*file, directory, name) : is_free(*file, directory, name)) file->remove();
  } catch (const Error&) {
    // In use, not ours to open, or foreign: not for the request that happened to pass by.
  }
}

void collect_mailbox(const Directory& directory, const std::string& name) {
  if (reach(directory, name).how == Reached::How::nobody) remove_mailbox(directory, name);
}

/// Calls `visit` with each name of the directory until that returns false.
void for_each_name(const Directory& directory, const std::function<bool(std::string)>& visit) {
  const int fd = openat(directory.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd < 0 ? nullptr : fdopendir(fd), closedir);
  if (!stream) throw_errno("cannot read the lock directory " + escaped(directory.path()));
  while (const dirent* entry = readdir(stream.get())) {  // NOLINT(concurrency-mt-unsafe)
    if (!visit(entry->d_name)) return;
  }
}

/// Any few of the names that dlock makes and removes, each as likely: the order of a directory
/// stays the same, and so would those that are looked at (reservoir sampling, Vitter's algorithm
/// R). Of a very large one mostly the beginning is read.
std::vector<std::string> some_names_in(const Directory& directory) {
  constexpr std::size_t beginning = 4096;
  std::minstd_rand random(static_cast<std::uint32_t>(BootClock::now().time_since_epoch().count()));
  const bool reads_all = random() % 4 == 0;
  std::vector<std::string> some;
  std::size_t seen = 0;
  for_each_name(directory, [&](std::string name) {
    if (!is_mailbox_name(name) && !is_key_file_name(name) && !is_latch_file_name(name)) return true;
    ++seen;
    if (some.size() < most_names_looked_at) {
      some.push_back(std::move(name));
    } else if (const std::size_t place = random() % seen; place < some.size()) {
      some[place] = std::move(name);
    }
    return reads_all || seen < beginning;
  });
  return some;
}

}  // namespace

std::vector<std::string> names_in(const Directory& directory) {
  std::vector<std::string> names;
  for_each_name(directory, [&](std::string name) {
    names.push_back(std::move(name));
    return true;
  });
  return names;
}

void collect_garbage(const Directory& directory) {
  // Who may only pass through the directory leaves the tidying to others.
  if (faccessat(directory.fd(), ".", R_OK, AT_EACCESS) != 0) return;
  const auto now = std::time(nullptr);
  for (const std::string& name : some_names_in(directory)) {
    const bool mailbox = is_mailbox_name(name);
    struct stat info {};
    if (fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const auto age = now - info.st_mtime;
    if (mailbox && age > mailbox_youth_seconds) collect_mailbox(directory, name);
    if (!mailbox && age > fence_life_seconds) collect_key(directory, name);
  }
}

}  // namespace dlock
