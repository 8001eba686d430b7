#include "local/key_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>

#include "base/wait.hpp"
#include "error_of.hpp"
#include "local/directory.hpp"
#include "local_support.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/temp_dir.hpp"

using namespace dlock;
using namespace dlock::test;

namespace {

struct Files {
  TempDir dir;
  Directory directory{{dir.path(), true}};

  std::optional<KeyFile> open(const std::string& name, KeyFile::Use use = KeyFile::Use::create,
                              const CallOptions& call_options = {}) const {
    return KeyFile::open(directory, name, use, call_options);
  }
  ErrorKind trouble_with(const std::string& name, const CallOptions& call_options = {}) const {
    const auto error = error_of([&] { open(name, KeyFile::Use::create, call_options); }).value();
    CHECK(error.second.find(name) != std::string::npos);
    return error.first;
  }
};

/// The access mode of this process's only descriptor of the file.
std::optional<int> access_to(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != path) continue;
    return fcntl(std::stoi(entry.path().filename().string()), F_GETFL) & O_ACCMODE;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("a key's file keeps what was written last, and is made only where that is asked") {
  const Files files;
  CHECK(!files.open("k", KeyFile::Use::read));
  CHECK(!files.open("k", KeyFile::Use::change));
  {
    auto file = files.open("k");
    CHECK(file->created());
    CHECK(file->read().empty());
    file->write("one", {}, [] {});
    file->write("two", {}, [] {});
  }
  auto file = files.open("k", KeyFile::Use::read);
  REQUIRE(file);
  CHECK(file->read() == "two");
  CHECK(file->written_in() == KeyFile::Boot::current);
}

TEST_CASE("a key's file that is only read is one that NFS can lock, too: open for writing") {
  const Files files;
  files.open("k");
  const auto file = files.open("k", KeyFile::Use::read);
  REQUIRE(file);
  CHECK(access_to(files.dir / "k") == O_RDWR);
}

TEST_CASE("links, directories, FIFOs and files with two names are refused as keys") {
  const Files files;
  write_file(files.dir / "target", "");
  REQUIRE(symlink("target", (files.dir / "symbolic").c_str()) == 0);
  REQUIRE(symlink("nothing", (files.dir / "dangling").c_str()) == 0);
  REQUIRE(mkdir((files.dir / "folder").c_str(), 0700) == 0);
  REQUIRE(mkfifo((files.dir / "fifo").c_str(), 0600) == 0);
  REQUIRE(link((files.dir / "target").c_str(), (files.dir / "hard").c_str()) == 0);
  for (const char* name : {"symbolic", "dangling", "folder", "fifo", "hard"}) {
    CHECK(files.trouble_with(name) == ErrorKind::host_refused);
    CHECK_THROWS_AS(files.open(name, KeyFile::Use::read), Error);
  }
  CHECK(read_file(files.dir / "target").empty());
}

TEST_CASE("another user's file in an own directory is refused") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can give a file away");
    return;
  }
  const Files files;
  write_file(files.dir / "k", "");
  REQUIRE(chown((files.dir / "k").c_str(), 65534, 65534) == 0);
  CHECK(files.trouble_with("k") == ErrorKind::host_refused);
}

TEST_CASE("a process stopped while it has the file makes others say so at their deadline") {
  const Files files;
  const Forked stopped([&] {
    const auto file = files.open("k");
    write_file(files.dir / "here", "");
    sleep_for_ever();
  });
  REQUIRE(wait_for_file(files.dir / "here"));
  stopped.signal(SIGSTOP);
  const auto start = BootClock::now();
  const CallOptions call_options{later(start, milliseconds(60)), -1};
  CHECK(files.trouble_with("k", call_options) == ErrorKind::unavailable);
  CHECK(BootClock::now() >= call_options.deadline);
  CHECK(BootClock::now() < later(start, milliseconds(15'000)));
  Event interrupt;
  interrupt.raise();
  const auto open = [&] { files.open("k", KeyFile::Use::create, {never, interrupt.fd()}); };
  CHECK(error_kind_of(open) == ErrorKind::interrupted);
}

TEST_CASE("who waited for a file that was removed meanwhile gets the new one") {
  const Files files;
  auto file = files.open("k");
  file->write("old", {}, [] {});
  Forked waiter([&] {
    auto mine = files.open("k");
    _exit(mine->created() && mine->read().empty() ? 7 : 1);
  });
  REQUIRE(eventually([&] { return queued_at_file(files.dir / "k") == 1; }));
  file->remove();
  file.reset();
  CHECK(waiter.wait() == 7);
}

TEST_CASE("a full disk leaves the state as it was and names the file") {
  const Files files;
  files.open("k")->write("small", {}, [] {});
  Forked limited([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{600, 600};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto file = files.open("k");
    file->read();
    const auto error = error_of([&] { file->write(std::string(10'000, 'x'), {}, [] {}); }).value();
    const bool named = error.second.find(files.dir / "k") != std::string::npos;
    _exit(error.first == ErrorKind::host_refused && named ? 7 : 1);
  });
  CHECK(limited.wait() == 7);
  CHECK(files.open("k")->read() == "small");
}

TEST_CASE("a tail is kept until another is written") {
  const Files files;
  files.open("k")->write("one", "tail", [] {});
  files.open("k")->read();
  auto file = files.open("k");
  CHECK(file->read() == "one");
  file->write("two", {}, [] {});
  CHECK(file->read_tail() == "tail");
  file->write("three", "another", [] {});
  CHECK(file->read_tail() == "another");
  file->write("four", "", [] {});
  CHECK(file->read_tail().empty());
}

TEST_CASE("a tail that a power cut has torn reads as empty in a state of before this boot") {
  const Files files;
  const std::string body = "state";
  for (const std::uint64_t boot : {boot_hash() + 1, boot_hash()}) {
    const Slot slot = next_slot({}, body, "tail", boot);
    std::string bytes(slot.body.end(), '\0');
    bytes.replace(0, sizeof(Slot), slot.bytes());
    bytes.replace(slot.body.offset, body.size(), body);
    write_file(files.dir / "k", bytes);
    auto file = files.open("k");
    CHECK(file->read() == body);
    if (boot == boot_hash()) {
      CHECK_THROWS_AS(file->read_tail(), Error);
    } else {
      CHECK(file->read_tail().empty());
    }
  }
}
