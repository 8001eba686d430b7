#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "local/fence_register_file.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/temp_dir.hpp"
#include "unit/error_of.hpp"

namespace dlock::test {
namespace {

FenceFile open_quietly(const std::string& path) {
  return FenceFile::open(path, [] {});
}

Fence seal_in(const std::string& path, std::int64_t fence) {
  return open_quietly(path).record_max(Fence{fence});
}

std::optional<ErrorKind> trouble_at(const std::string& path) {
  return error_kind_of([&] { seal_in(path, 5); });
}

}  // namespace

TEST_CASE("a seal file holds the largest fence that came, as people write it") {
  const TempDir dir;
  const std::string path = dir / "seal";
  CHECK(seal_in(path, 0) == Fence{0});
  CHECK(read_file(path) == "0\n");
  CHECK(seal_in(path, 99) == Fence{99});
  CHECK(seal_in(path, 98) == Fence{99});
  CHECK(seal_in(path, 99) == Fence{99});
  CHECK(read_file(path) == "99\n");
  CHECK(seal_in(path, largest_fence) == Fence{largest_fence});
  CHECK(read_file(path) == "9007199254740991\n");
  CHECK(seal_in(path, 0) == Fence{largest_fence});
}

TEST_CASE("a seal file that a power cut left with room for a longer fence has the one before") {
  const TempDir dir;
  const std::string path = dir / "seal";
  write_file(path, std::string("99\n\0\0", 5));
  CHECK(seal_in(path, 98) == Fence{99});
  CHECK(seal_in(path, 100) == Fence{100});
  CHECK(seal_in(path, 99) == Fence{100});
  CHECK(seal_in(path, 12345) == Fence{12345});
  CHECK(read_file(path) == "12345\n");
}

TEST_CASE("a seal file with anything else in it is refused and stays as it is") {
  const TempDir dir;
  const std::string path = dir / "seal";
  for (const std::string& text :
       {std::string("x\n"), std::string("1"), std::string("1\n\n"), std::string("1\n2\n"),
        std::string("-1\n"), std::string("+1\n"), std::string("01\n"), std::string(" 1\n"),
        std::string("1 \n"), std::string("1\r\n"), std::string("\n"), std::string("\0\0", 2),
        std::string("9007199254740992\n"), std::string(4096, '1'),
        std::string("1\n") + std::string(40, '\0')}) {
    CAPTURE(text);
    write_file(path, text);
    CHECK(trouble_at(path) == ErrorKind::wrong_data);
    CHECK(read_file(path) == text);
  }
}

TEST_CASE("what is no plain file is no seal file") {
  const TempDir dir;
  write_file(dir / "file", "1\n");
  std::filesystem::create_symlink(dir / "file", dir / "link");
  std::filesystem::create_symlink(dir / "nowhere", dir / "dangling");
  REQUIRE(mkfifo((dir / "fifo").c_str(), 0600) == 0);
  for (const std::string& path :
       {dir.path(), dir / "", dir / "link", dir / "dangling", dir / "fifo", dir / "none/seal",
        dir / "file/seal", std::string("/dev/null"), std::string("/")}) {
    CAPTURE(path);
    CHECK(trouble_at(path) == ErrorKind::host_refused);
  }
  CHECK(read_file(dir / "file") == "1\n");
  CHECK_FALSE(std::filesystem::exists(dir / "nowhere"));
}

TEST_CASE("a seal file is made for those who may write beside it, and stays the same file") {
  const TempDir dir;
  const std::string path = dir / "seal";
  REQUIRE(chmod(dir.path().c_str(), 0775) == 0);
  seal_in(path, 1);
  struct stat made {};
  REQUIRE(stat(path.c_str(), &made) == 0);
  CHECK((made.st_mode & 07777) == 0660);
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  seal_in(path, 12345);
  struct stat now {};
  REQUIRE(stat(path.c_str(), &now) == 0);
  CHECK(now.st_ino == made.st_ino);
  CHECK((now.st_mode & 07777) == 0600);
}

TEST_CASE("who waits for a seal file is told after a while, and gets the one that is there then") {
  const TempDir dir;
  const std::string path = dir / "seal";
  auto first = std::make_optional(open_quietly(path));
  std::atomic<int> told = 0;
  std::atomic<bool> in = false;
  std::thread second([&] {
    FenceFile file = FenceFile::open(path, [&] { ++told; });
    in = true;
    file.record_max(Fence{5});
  });
  CHECK(eventually([&] { return told == 1; }));
  CHECK_FALSE(in);
  write_file(dir / "new", "3\n");
  std::filesystem::rename(dir / "new", path);
  first.reset();
  second.join();
  CHECK(told == 1);
  CHECK(read_file(path) == "5\n");
}

}  // namespace dlock::test
