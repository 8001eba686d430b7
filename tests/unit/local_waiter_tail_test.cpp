#include "local/file_names.hpp"
#include "local/open_key.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <random>

#include "error_of.hpp"
#include "local/key_file.hpp"
#include "local_support.hpp"
#include "support/files.hpp"
#include "support/temp_dir.hpp"

using namespace dlock;
using namespace dlock::test;

namespace {

const LockKey the_key{"k"};

WaiterEntry waiter(int number) {
  WaiterEntry entry;
  entry.token.text = "token" + std::to_string(number);
  entry.owner.text = "owner";
  entry.ticket.value = number;
  entry.who = Who{"host", number, "user", "command", ""};
  return entry;
}

LockTable table_of(int waiters) {
  LockTable table;
  for (int i = 0; i < waiters; ++i) table.queue.push_back(waiter(i));
  return table;
}

/// The file of a key, with a queue of any length.
struct QueueOfAnyLength {
  TempDir dir;
  Directory directory{{dir.path(), true}};
  const std::string path = dir / key_file_name(the_key);

  /// Opens the key; the request of a holder does not read the tail.
  OpenKey open(const Token& self = {}) const {
    return *OpenKey::open(directory, the_key, KeyFile::Use::create, self, {});
  }
  void write(const LockTable& table) const {
    OpenKey opened = open();
    opened.table = table;
    opened.write([] {});
  }
  /// Does the same, but is killed before the last step.
  void begin_to_write(const LockTable& table) const {
    Forked killed([&] {
      OpenKey opened = open();
      opened.table = table;
      opened.write([] { raise(SIGKILL); });
      _exit(1);
    });
    CHECK(killed.wait() == 128 + SIGKILL);
  }
  LockTable read() const { return open().table; }
  std::size_t size() const {
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    return static_cast<std::size_t>(info.st_size);
  }
};

}  // namespace

TEST_CASE("a queue of any length survives writers killed between any two of their writes") {
  std::string label;
  SUBCASE("with lines of the usual length") {}
  SUBCASE("with lines so long that the first waiters alone take a lot of room") {
    label = std::string(9000, 'x');
  }
  const QueueOfAnyLength queue;
  std::mt19937 random(7);
  const auto up_to = [&](std::size_t most) { return static_cast<long>(random() % (most + 1)); };
  LockTable table;
  int next = 0;
  for (int step = 0; step < 100; ++step) {
    const LockTable before = table;
    auto& line = table.queue;
    const auto size = line.size();
    switch (random() % 5) {
      case 0:
        line.erase(line.begin(), line.begin() + up_to(size));
        break;
      case 1:
        line.erase(line.begin(), line.begin() + up_to(std::min<std::size_t>(size, 3)));
        break;
      case 2:
        if (size > 0) line.erase(line.begin() + up_to(size - 1));
        break;
      case 3:
        if (size > 0) line[random() % size].seen = microseconds(step);
        break;
      default:
        for (auto joining = up_to(90); joining >= 0; --joining) {
          line.push_back(waiter(next++));
          line.back().who.label = label;
        }
    }
    queue.begin_to_write(table);
    CHECK(queue.read() == before);
    queue.write(table);
    CHECK(queue.read() == table);
  }
  CHECK(queue.size() < 600'000 + 4 * 400 * label.size());
}

TEST_CASE("a hand-over in a long queue neither reads nor writes the waiters far behind") {
  const QueueOfAnyLength queue;
  LockTable table = table_of(500);
  table.holds.resize(1);
  table.holds[0].token.text = "holder";
  queue.write(LockTable{});
  queue.write(table);
  std::string bytes = read_file(queue.path);
  const auto place = bytes.find("token300");
  REQUIRE(place != bytes.npos);
  bytes[place] = 'T';
  write_file(queue.path, bytes);
  for (int i = 0; i < 10; ++i) {
    OpenKey opened = queue.open({"holder"});
    CHECK(opened.table.queue.size() < 100);
    CHECK(opened.table.queue.front() == waiter(i));
    opened.table.queue.pop_front();
    opened.write([] {});
  }
  const std::string later = read_file(queue.path);
  CHECK(later.substr(place - 1000, 2000) == bytes.substr(place - 1000, 2000));
  const auto error = error_of([&] { queue.read(); }).value();
  CHECK(error.first == ErrorKind::wrong_data);
  CHECK(error.second.find("is damaged") != std::string::npos);
}
