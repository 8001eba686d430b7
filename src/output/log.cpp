#include "output/log.hpp"

#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/error.hpp"

namespace dlock {
namespace {

void write_line(const std::string& text) { write_all(STDERR_FILENO, "dlock: " + text + "\n"); }

}  // namespace

bool write_all(int fd, const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto written = write(fd, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void print(const std::string& text) {
  if (!write_all(STDOUT_FILENO, text)) throw_errno("cannot write");
}

void Log::error(const std::string& text) const { write_line(text); }

void Log::notice(const std::string& text) const {
  if (!quiet_) write_line(text);
}

void Log::detail(const std::string& text) const {
  if (verbose_) write_line(text);
}

}  // namespace dlock
