// The locks of `run` before its command starts, and the lines of a wait.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"
#include "commands/held_locks.hpp"
#include "commands/wait_reporter.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/idle_store.hpp"
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

/// A server that is busy with other clients until `until`, and then renews.
class BusyStore final : public IdleStore {
 public:
  explicit BusyStore(Deadline until) : until_(until) {}

  Renewed renew(const Claim&, const RenewalOptions&, const CallOptions&) override {
    ++renewals;
    const Deadline now = BootClock::now();
    if (now < until_) throw Error(ErrorKind::unavailable, "busy", Cause::busy);
    return {Grant{Fence{1}, Lease{milliseconds(60'000), later(now, milliseconds(60'000))}}};
  }

  int renewals = 0;

 private:
  Deadline until_;
};

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

TEST_CASE("held locks: a busy server is asked to renew again, but not without pauses") {
  constexpr milliseconds busy{300}, least_pause{20};
  const auto begun = BootClock::now();
  BusyStore store(later(begun, busy));
  Claim claim;
  claim.key = LockKey{"k"};
  claim.ttl = milliseconds(60'000);
  const Lease used_up{claim.ttl, later(begun, milliseconds(15'000))};
  const Log log(true, false);
  HeldLocks held(store, {{claim, Grant{Fence{1}, used_up}}}, log);
  CHECK(held.ready_to_start(milliseconds(5000)));
  CHECK(store.renewals > 1);
  CHECK(store.renewals <= 1 + (BootClock::now() - begun) / least_pause);
}

}  // namespace dlock::test
