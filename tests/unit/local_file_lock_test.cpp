#include "local/locked_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "base/wait.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/temp_dir.hpp"

using namespace dlock;
using namespace dlock::test;

namespace {

/// A file, and any number of open file descriptions of it.
class OneFile {
 public:
  Fd open() const { return Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)); }
  bool is_free() const {
    const Fd fd = open();
    return flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
  }
  /// The number of waiters for its lock.
  long queued() const { return queued_at_file(path_); }

 private:
  TempDir dir_;
  std::string path_ = dir_ / "file";
};

CallOptions for_a_moment() { return {later(BootClock::now(), milliseconds(30)), -1}; }

bool lock(const Fd& fd, const CallOptions& call_options = {}) {
  return lock_file(fd.get(), call_options, "the file");
}

}  // namespace

TEST_CASE("processes that find a file locked get it in the order in which they came") {
  const OneFile file;
  Fd first = file.open();
  CHECK(lock(first));
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 5; ++i) {
    waiters.emplace_back([&, i] {
      const Fd fd = file.open();
      CHECK(lock(fd));
      const std::lock_guard guard(mutex);
      order.push_back(i);
    });
    REQUIRE(eventually([&] { return file.queued() == i + 1; }));
  }
  first = Fd();
  for (std::thread& each : waiters) each.join();
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("a wait for a locked file ends at its deadline and leaves nothing in the queue") {
  const OneFile file;
  Fd holder = file.open();
  CHECK(lock(holder));
  const Fd late = file.open();
  CHECK(!lock(late, for_a_moment()));
  CHECK(file.queued() == 0);
  holder = Fd();
  CHECK(file.is_free());
  CHECK(lock(late, for_a_moment()));
  CHECK(!file.is_free());
}

TEST_CASE("a wait for a locked file can be cancelled") {
  const OneFile file;
  Fd holder = file.open();
  CHECK(lock(holder));
  Event cancelled;
  const Fd waiter = file.open();
  std::thread canceller([&] {
    CHECK(eventually([&] { return file.queued() == 1; }));
    cancelled.raise();
  });
  CHECK(!lock(waiter, {never, cancelled.fd()}));
  canceller.join();
  CHECK(file.queued() == 0);
  holder = Fd();
  CHECK(file.is_free());
}
