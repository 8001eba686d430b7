#include "output/metrics_file.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "output/log.hpp"

namespace dlock {
namespace {

/// A file of ours is far below that; of another only the beginning is looked at.
constexpr std::size_t most_read = 1 << 20;
constexpr mode_t for_all_to_read = 0644;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::host_refused, why); }
[[noreturn]] void refuse_errno() { refuse(std::strerror(errno)); }

/// A rename would put a file in the place of /dev/null, or of a link to it.
void refuse_what_is_no_file(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    refuse("it is not a regular file");
  }
}

std::string text_of(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::string text;
  if (!file) return text;
  char part[4096];
  while (text.size() < most_read) {
    const auto got = read(file.get(), part, sizeof part);
    if (got <= 0) break;
    text.append(part, static_cast<std::size_t>(got));
  }
  return text;
}

/// A file that takes another's place; what is left under its own name is removed. Nothing is forced
/// to the disk: that takes longer than most jobs wait for their lock.
class Replacement {
 public:
  explicit Replacement(const std::string& path) : path_(path) {
    const auto name = path.rfind('/') + 1;
    beside_ = path.substr(0, name) + "." + path.substr(name) + ".XXXXXX";
    file_ = Fd(mkostemp(beside_.data(), O_CLOEXEC));
    if (!file_) refuse_errno();
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement() {
    if (!in_place_) unlink(beside_.c_str());
  }

  void fill(const std::string& text) {
    if (!write_all(file_.get(), text) || fchmod(file_.get(), for_all_to_read) != 0) refuse_errno();
  }

  void take_place() {
    // A rename over a file makes ext4 write the new one out first.
    const bool exchanged =
        renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0;
    if (exchanged) return;
    if (rename(beside_.c_str(), path_.c_str()) != 0) refuse_errno();
    in_place_ = true;
  }

 private:
  const std::string& path_;
  std::string beside_;
  Fd file_;
  bool in_place_ = false;
};

}  // namespace

void replace_metrics_file(const std::string& path,
                          const std::function<std::string(std::string_view before)>& text) {
  refuse_what_is_no_file(path);
  const std::string now = text(text_of(path));
  Replacement file(path);
  file.fill(now);
  file.take_place();
}

}  // namespace dlock
