#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <new>
#include <optional>

#include "local/local_store.hpp"
#include "local_support.hpp"
#include "support/asleep.hpp"
#include "support/eventually.hpp"
#include "support/temp_dir.hpp"

using namespace dlock;
using namespace dlock::test;

namespace {

/// Sleeps for `claim` until `until`; returns whether the lock was handed over and confirmed.
bool sleep_for_lock(LocalStore& store, const Claim& claim, Deadline until) {
  while (true) {
    const Wake wake = store.sleep(claim, until, -1);
    if (wake.why == Wake::Reason::granted) return store.renew(claim, {}, {}).grant.has_value();
    if (wake.why != Wake::Reason::changed) return false;
    until = wake.ask_again_at;
  }
}

/// Waits in the queue until it has the lock, as acquire() does.
void wait_for_lock(LocalStore& store, const Claim& claim) {
  Ask ask{true, std::nullopt};
  while (true) {
    const Answer answer = store.acquire(claim, ask, {});
    if (std::holds_alternative<Grant>(answer)) return;
    const auto& refusal = std::get<Refusal>(answer);
    ask.ticket = refusal.ticket;
    const auto span = std::min(refusal.ask_again_in, milliseconds(25'000));
    if (sleep_for_lock(store, claim, later(BootClock::now(), span))) return;
  }
}

struct Stage {
  TempDir dir;
  DirectorySettings settings{dir / "locks", true};
  LocalStore store{settings};
  /// A number that the test shares with its forked processes.
  std::atomic<int>& shared = *new (mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);
  ~Stage() { munmap(&shared, sizeof(shared)); }

  std::size_t waiting(const std::string& key) {
    return store.inspect({{{key}}, {}}, {})[0].waiters.size();
  }
  bool held(const std::string& key) { return !store.inspect({{{key}}, {}}, {})[0].holders.empty(); }
  std::size_t files() const {
    const auto listing = std::filesystem::directory_iterator(settings.path);
    return static_cast<std::size_t>(std::distance(begin(listing), end(listing)));
  }
  /// Acquires the key in this process, counts that in `shared`, and stays.
  void hold_and_stay(const std::string& key) const {
    LocalStore own(settings);
    wait_for_lock(own, claim_on(key));
    ++shared;
    sleep_for_ever();
  }
};

}  // namespace

TEST_CASE("a waiter that becomes first because the one before it left watches the holder") {
  Stage stage;
  Forked holder([&] { stage.hold_and_stay("k"); });
  REQUIRE(eventually([&] { return stage.shared == 1; }));
  const Claim leaving = claim_on("k");
  REQUIRE(std::holds_alternative<Refusal>(stage.store.acquire(leaving, {true, {}}, {})));
  Forked next([&] { stage.hold_and_stay("k"); });
  REQUIRE(eventually([&] { return stage.waiting("k") == 2; }));
  REQUIRE(fall_asleep({next.pid()}));
  CHECK(stage.store.release(leaving, {}, {}).outcome == Released::left_queue);
  REQUIRE(fall_asleep({next.pid()}));
  holder.signal(SIGKILL);
  CHECK(eventually([&] { return stage.shared == 2; }, milliseconds(15'000)));
}

TEST_CASE("a killed holder with a floor leaves the key kept if its command had started") {
  for (const bool started : {true, false}) {
    CAPTURE(started);
    Stage stage;
    Forked holder([&] {
      LocalStore own(stage.settings);
      Claim claim = claim_on("k");
      claim.floor = milliseconds(60'000);
      wait_for_lock(own, claim);
      setpgid(0, 0);
      if (started) own.command_started(claim, getpid());
      ++stage.shared;
      sleep_for_ever();
    });
    REQUIRE(eventually([&] { return stage.shared == 1; }));
    holder.signal(SIGKILL);
    holder.wait();
    CHECK(stage.held("k") == started);
    if (!started) continue;
    const auto refusal = std::get<Refusal>(stage.store.acquire(claim_on("k"), {}, {}));
    REQUIRE(refusal.held_by.size() == 1);
    CHECK(refusal.held_by[0].kept);
  }
}

TEST_CASE("what a process took to be renewed outlives it") {
  Stage stage;
  Forked holder([&] {
    LocalStore own(stage.settings);
    Claim claim = claim_on("k");
    claim.upkeep = Liveness::renewal;
    wait_for_lock(own, claim);
  });
  CHECK(holder.wait() == 0);
  CHECK(stage.held("k"));
}

TEST_CASE("a hold that lives with another process outlives the one that asked, and ends with it") {
  Stage stage;
  Forked other(sleep_for_ever);
  Forked asker([&] {
    LocalStore own(stage.settings);
    const Claim claim = claim_on("k");
    wait_for_lock(own, claim);
    if (!own.live_with(claim, other.pid())) _exit(2);
  });
  CHECK(asker.wait() == 0);
  CHECK(stage.held("k"));
  Forked waiter([&] { stage.hold_and_stay("k"); });
  REQUIRE(eventually([&] { return stage.waiting("k") == 1; }));
  other.signal(SIGKILL);
  CHECK(eventually([&] { return stage.shared == 1; }));
}

TEST_CASE("a hold that has gone cannot be made to live with another process") {
  Stage stage;
  CHECK(!stage.store.live_with(claim_on("k"), getpid()));
  const Claim claim = claim_on("k");
  wait_for_lock(stage.store, claim);
  stage.store.evict(claim.key, std::nullopt, Who{}, {});
  CHECK(!stage.store.live_with(claim, getpid()));
}

TEST_CASE("a store left to a forked process is cleared up by that one alone") {
  Stage stage;
  const Claim claim = claim_on("k");
  std::optional<LocalStore> first(stage.settings);
  wait_for_lock(*first, claim);
  Forked second([&] {
    first->leave_to(getpid());
    while (stage.shared == 0) usleep(1000);
    first->release(claim, {}, {});
    first.reset();
  });
  first->leave_to(second.pid());
  first.reset();
  CHECK(stage.files() == 2);  // the key's file and the FIFO
  stage.shared = 1;
  CHECK(second.wait() == 0);
  CHECK(stage.files() == 1);
}
