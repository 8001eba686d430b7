#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "commands/wait_reporter.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {
namespace {

/// Redirects stderr to a file.
class Stderr {
 public:
  Stderr() : before_(dup(STDERR_FILENO)) {
    const Fd file(open(path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    dup2(file.get(), STDERR_FILENO);
  }
  ~Stderr() { dup2(before_.get(), STDERR_FILENO); }
  std::string text() const { return read_file(path()); }

 private:
  std::string path() const { return dir_ / "err"; }

  TempDir dir_;
  Fd before_;
};

milliseconds at_once(int n) { return milliseconds(10 * n); }

/// Simulates a suspend: a hundred lines are overdue, and the next comes a minute later.
milliseconds together(int n) { return n <= 100 ? milliseconds(10) : milliseconds(60'000); }

WaitReporter::Text says(const std::string& text) {
  return [text](milliseconds, const Screen&) { return text; };
}

const LockKey key{"nightly"};

}  // namespace

TEST_CASE("a wait is told of each minute, and after five minutes every five") {
  std::string minutes;
  for (int n = 1; n <= 8; ++n) {
    minutes += std::to_string(wait_line_due(n) / std::chrono::minutes(1)) + " ";
  }
  CHECK(minutes == "1 2 3 4 5 10 15 20 ");
}

TEST_CASE("the lines of a wait say what was told last, and end with it") {
  const Stderr written;
  const Log log(false, false);
  WaitReporter lines(log, {}, at_once);
  lines.waiting(key, says("first"));
  CHECK(eventually([&] { return written.text().find("dlock: first\n") == 0; }));
  lines.waiting(key, [](milliseconds waited, const Screen&) {
    return waited.count() > 0 ? "second" : "at once";
  });
  CHECK(eventually([&] { return written.text().find("dlock: second\n") != std::string::npos; }));
  lines.end();
  const std::string all = written.text();
  usleep(50'000);
  CHECK(written.text() == all);
}

TEST_CASE("the lines of a wait that are overdue together come as one") {
  const Stderr written;
  const Log log(false, false);
  WaitReporter lines(log, {}, together);
  lines.waiting(key, says("still waiting"));
  CHECK(eventually([&] { return written.text() != ""; }));
  usleep(200'000);
  lines.end();
  CHECK(written.text() == "dlock: still waiting\n");
}

TEST_CASE("a wait that ends before its first line is near has no thread") {
  const Log log(false, false);
  const std::size_t before = settled_thread_count();
  WaitReporter lines(log);
  lines.waiting(key, says("first"));
  lines.waiting(key, says("second"));
  CHECK(thread_count() == before);
}

TEST_CASE("a wait that nobody may change for long has its thread at once") {
  const Stderr written;
  const Log log(false, false);
  WaitReporter lines(log);
  lines.waiting(key, says("held"));
  const std::size_t before = settled_thread_count();
  lines.server_lost("no answer");
  CHECK(thread_count() == before + 1);
}

TEST_CASE("a quiet wait is not told of") {
  const Stderr written;
  const Log log(true, false);
  WaitReporter lines(log, {}, at_once);
  lines.waiting(key, says("first"));
  usleep(50'000);
  lines.end();
  CHECK(written.text() == "");
}

}  // namespace dlock::test
