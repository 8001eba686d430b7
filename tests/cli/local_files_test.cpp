#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <system_error>

#include "cli/place.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

namespace fs = std::filesystem;

std::string locks_of(const Place& place) {
  return place.url().substr(std::string("local:").size());
}

void for_each_file(const Place& place, const std::function<void(const std::string&)>& visit) {
  for (const auto& entry : fs::directory_iterator(locks_of(place))) visit(entry.path());
}

void make_all_old(const Place& place) {
  constexpr std::time_t long_ago = 1'000'000;
  const timespec times[] = {{long_ago, 0}, {long_ago, 0}};
  for_each_file(place, [&](const std::string& path) {
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  });
}

bool all_are_new(const Place& place) {
  bool all = true;
  for_each_file(place, [&](const std::string& path) {
    struct stat info {};
    const bool there = stat(path.c_str(), &info) == 0;
    all = all && there && info.st_mtime > std::time(nullptr) - 3600;
  });
  return all;
}

void remove_all(const Place& place) {
  for_each_file(place, [](const std::string& path) { fs::remove(path); });
}

TEST_CASE("local: the files of a long hold never grow old") {
  const Place place(Engine::local);
  const auto holder = place.hold("a");
  auto script = attached(place, "-k b");
  make_all_old(place);
  CHECK(eventually([&] { return all_are_new(place); }));
  CHECK(place.dlock({"run", "-q", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(end_script(script));
}

TEST_CASE("local: a hold whose files or directory are removed is lost, and its command ends") {
  for (const bool directory_too : {false, true}) {
    const Place place(Engine::local);
    auto holder = place.start({"run", "-k", "a", "--", "sh", "-c", "echo in; exec sleep 60"});
    REQUIRE(eventually([&] { return holder.out() == "in\n"; }));
    remove_all(place);
    if (directory_too) fs::remove(locks_of(place));
    check_says(holder.wait(), 79, "lost a: local:" + locks_of(place) + " no longer has it");
    if (directory_too) fs::create_directory(locks_of(place));
  }
}

/// False also where a client has made a file anew while the directory was being removed.
bool waiter_ends_without_directory() {
  const Place place(Engine::local);
  const auto holder = place.hold("a");
  Process waiter = place.start({"run", "-k", "a", "--", "echo", "ran"});
  REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
  std::error_code not_empty;
  fs::remove_all(locks_of(place), not_empty);
  const auto result = waiter.wait();
  fs::create_directory(locks_of(place));
  return result.exit_code == 71 && result.out.empty() &&
         holds(result.err, "dlock: a: cannot make " + locks_of(place));
}

TEST_CASE("local: a waiter whose lock directory is removed ends with 71, and runs nothing") {
  CHECK(in_one_of(3, waiter_ends_without_directory));
}

TEST_CASE("local: a script whose lock's file is removed is told") {
  const Place place(Engine::local);
  auto script = attached(place, "-k a");
  remove_all(place);
  CHECK(script.wait().signal == SIGTERM);
  CHECK(keepers_leave(script.pid()));
}

TEST_CASE("local: a holder makes its FIFO anew, through which it is told that it is evicted") {
  const Place place(Engine::local);
  auto holder = place.hold("a");
  for_each_file(place, [](const std::string& path) {
    if (fs::is_fifo(path)) fs::remove(path);
  });
  REQUIRE(eventually([&] {
    bool there = false;
    for_each_file(place, [&](const std::string& path) { there = there || fs::is_fifo(path); });
    return there;
  }));
  CHECK(place.dlock({"release", "--force", "a"}).exit_code == 0);
  CHECK(holder.wait().exit_code == 79);
}

}  // namespace
}  // namespace dlock::test
