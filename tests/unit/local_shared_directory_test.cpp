#include <doctest/doctest.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local/fence_register_file.hpp"
#include "local/latch_file.hpp"
#include "local/wake_fifo.hpp"
#include "support/eventually.hpp"
#include "support/privileges.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"
#include "unit/local_support.hpp"

using namespace dlock;
using namespace dlock::test;

namespace {

constexpr uid_t one = 1234501;
constexpr uid_t other = 1234502;

/// Runs `work` as the user; each user has only one group, with the same number.
bool as_user(uid_t user, const std::function<void()>& work) {
  Forked child([&] {
    if (setgroups(0, nullptr) != 0 || setgid(user) != 0 || setuid(user) != 0) _exit(1);
    try {
      work();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  });
  return child.wait() == 0;
}

/// Creates a lock, a latch, two FIFOs and a fence register as `first`, and uses them as `second`.
bool usable_by_both(const std::string& path, uid_t first, uid_t second) {
  const DirectorySettings settings{path, false};
  const CallOptions soon{later(BootClock::now(), std::chrono::seconds(5)), -1};
  const Directory directory(settings);
  WakeFifo of_first(directory);
  bool all = true;
  for (const uid_t user : {first, second}) {
    all = as_user(user,
                  [&] {
                    LocalStore store(settings);
                    if (!try_lock(store, claim_on("k"))) _exit(2);
                    store.open_latch({"l"}, {2, std::chrono::seconds(60)}, soon);
                    if (!store.arrive({"l"}, {std::to_string(user)}, soon)) _exit(3);
                    FenceFile::open(settings, {"r"}, [] {}).record_max({user});
                    FenceFile::open(path + "/seal", [] {}).record_max({user});
                  }) &&
          all;
  }
  Forked listener([&] {
    if (setgroups(0, nullptr) != 0 || setgid(first) != 0 || setuid(first) != 0) _exit(1);
    of_first.open();
    sleep_for_ever();
  });
  const std::string fifo = path + "/" + of_first.name();
  REQUIRE(eventually([&] { return access(fifo.c_str(), F_OK) == 0; }));
  bool reached = false;
  // The FIFO is closed to others for a moment between its creation and its chmod.
  for (int i = 0; i < 200 && !reached; ++i) {
    reached = as_user(second, [&] {
      if (reach(directory, of_first.name()).how != Reached::How::listening) _exit(4);
    });
  }
  listener.signal(SIGKILL);
  return all && reached;
}

/// Adds the other user to the ACL of `path`; false if the file system has no ACLs.
bool list(const std::string& path, const std::string& which = "") {
  const std::string entry = "u:" + std::to_string(other) + ":rwx";
  return run({"sh", "-c", "setfacl " + which + " -m " + entry + " '" + path + "'"}).exit_code == 0;
}

}  // namespace

TEST_CASE("each user that may write to a shared directory can use what another has made there") {
  if (const std::string reason = not_root_here(); !reason.empty()) {
    MESSAGE("skipped: " << reason);
    return;
  }
  const TempDir dir;
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  const auto made = [&](const char* name, mode_t mode, gid_t group) {
    const std::string path = dir / name;
    REQUIRE(mkdir(path.c_str(), 0700) == 0);
    REQUIRE(chown(path.c_str(), one, group) == 0);
    REQUIRE(chmod(path.c_str(), mode) == 0);
    return path;
  };
  CHECK(usable_by_both(made("root first", 0755, one), 0, one));
  CHECK(usable_by_both(made("sticky", 01777, 0), one, other));
  if (!list(made("probe", 0755, one))) {
    MESSAGE("skipped: no setfacl here, or no access control lists");
    return;
  }
  CHECK(usable_by_both(made("owner first", 0770, other), one, other));
  CHECK(usable_by_both(made("owner outside of the group", 0770, other), other, one));
  CHECK(usable_by_both(made("setgid", 02775, other), other, one));
  CHECK(usable_by_both(made("others", 0707, one), other, one));
  for (const auto& [first, second] : {std::pair(one, other), std::pair(other, one)}) {
    const std::string listed = made(first == one ? "list 1" : "list 2", 0700, one);
    REQUIRE(list(listed));
    CHECK(usable_by_both(listed, first, second));
    const std::string by_default = made(first == one ? "default 1" : "default 2", 0700, one);
    REQUIRE(list(by_default));
    REQUIRE(list(by_default, "-d"));
    CHECK(usable_by_both(by_default, first, second));
  }
  CHECK_FALSE(usable_by_both(made("closed", 0755, one), one, other));
}
