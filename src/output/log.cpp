#include "output/log.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr milliseconds longest_wait_for_reader{1000};

/// The priorities of syslog(3).
enum class Priority { error = 3, warning = 4, info = 6, debug = 7 };

/// Whether stderr is the journal, whose file systemd names in this variable.
bool stderr_is_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");  // NOLINT(concurrency-mt-unsafe)
  struct stat status {};
  if (stream == nullptr || fstat(STDERR_FILENO, &status) != 0) return false;
  return stream == std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

void write_line(Priority priority, const std::string& text) {
  // dlock checks stderr only once, before it has a second thread: stderr does not change.
  static const bool graded = stderr_is_journal();
  const Deadline give_up = later(BootClock::now(), longest_wait_for_reader);
  if (priority != Priority::error && !takes_a_line(STDERR_FILENO, give_up)) return;
  const std::string grade =
      graded ? "<" + std::to_string(static_cast<int>(priority)) + ">" : std::string();
  write_all(STDERR_FILENO, grade + "dlock: " + text + "\n");
}

/// Messages name a key after these words. Elsewhere the text of a key may be an ordinary word.
constexpr std::string_view before_a_key[] = {": ",    "for ",     "from ",    "held ",  "latch ",
                                             "lost ", "matches ", "release ", "renews "};

/// Whether `text` names `key`.
bool names(const std::string& text, const std::string& key) {
  const auto names_next = [](std::string_view before) {
    return before.empty() ||
           std::any_of(std::begin(before_a_key), std::end(before_a_key),
                       [&](std::string_view last) { return before.ends_with(last); });
  };
  const auto ends_word = [&](std::size_t at) {
    return at >= text.size() || std::string_view(" ,;:").find(text[at]) != std::string_view::npos;
  };
  for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    const std::string_view before = std::string_view(text).substr(0, at);
    if (names_next(before) && ends_word(at + key.size())) return true;
  }
  return false;
}

}  // namespace

bool write_all(int fd, const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto written = write(fd, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // another process has made the file non-blocking
      takes_a_line(fd, never);
      continue;
    }
    if (written < 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void print(const std::string& text) {
  if (!write_all(STDOUT_FILENO, text)) throw_errno("cannot write");
}

bool takes_a_line(int fd, Deadline until) {
  pollfd reader[] = {{fd, POLLOUT, 0}};
  return poll_until(reader, until) > 0;
}

Log::Log(bool quiet, bool verbose, const std::vector<LockKey>& keys, std::string server_place)
    : quiet_(quiet), verbose_(verbose), server_place_(std::move(server_place)) {
  for (const LockKey& key : keys) keys_.push_back(escaped(key.text));
}

std::string Log::with_key(const std::string& text) const {
  const bool named = std::any_of(keys_.begin(), keys_.end(),
                                 [&](const std::string& key) { return names(text, key); });
  return named || keys_.empty() ? text : joined(keys_, ", ") + ": " + text;
}

void Log::error(const std::string& text) const { write_line(Priority::error, with_key(text)); }

void Log::error(const Error& error) const {
  const bool is_of_server =
      error.kind() == ErrorKind::unavailable || error.kind() == ErrorKind::denied;
  const bool has_place = is_of_server && !server_place_.empty();
  this->error(error.what() + (has_place ? " (server from " + server_place_ + ")" : std::string()));
}

void Log::warning(const std::string& text) const { write_line(Priority::warning, text); }

void Log::notice(const std::string& text) const {
  if (!quiet_) write_line(Priority::info, with_key(text));
}

void Log::detail(const std::string& text) const {
  if (verbose_) write_line(Priority::debug, text);
}

}  // namespace dlock
