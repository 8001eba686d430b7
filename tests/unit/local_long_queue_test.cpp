// Queues with most waiters in the tail, outside of the table's text.

#include <doctest/doctest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "base/wait.hpp"
#include "local/local_store.hpp"
#include "local_support.hpp"
#include "support/temp_dir.hpp"

using namespace dlock;
using namespace dlock::test;

namespace {

/// A held key with a number of waiters.
struct LongQueue {
  LongQueue(std::size_t waiters, Limit limit, std::size_t writer = SIZE_MAX) {
    REQUIRE(try_lock(holder, held));
    for (std::size_t i = 0; i < waiters; ++i) {
      stores.push_back(std::make_unique<LocalStore>(settings));
      claims.push_back(claim_on("k"));
      claims.back().limit = i == writer ? exclusive : limit;
      const auto answer = stores.back()->acquire(claims.back(), {true, {}}, {});
      REQUIRE(std::get<Refusal>(answer).ahead == i);
    }
  }
  void let_in() { holder.release(held, {}, {}); }
  Released release(std::size_t i) { return stores[i]->release(claims[i], {}, {}).outcome; }
  void remove(std::size_t i) {
    stores.erase(stores.begin() + static_cast<std::ptrdiff_t>(i));
    claims.erase(claims.begin() + static_cast<std::ptrdiff_t>(i));
  }
  KeyState state() { return holder.inspect({{{"k"}}, {}}, {})[0]; }

  TempDir dir;
  DirectorySettings settings{dir / "locks", true};
  LocalStore holder{settings};
  const Claim held = claim_on("k");
  std::vector<std::unique_ptr<LocalStore>> stores;
  std::vector<Claim> claims;
};

/// Hands the lock to one waiter after the other. False if the machine was so late that a hand-over
/// may have expired.
bool hands_on(LongQueue& queue) {
  Deadline handed_over = BootClock::now();
  queue.let_in();
  for (std::size_t i = 0; i < queue.stores.size(); ++i) {
    CHECK(readable(queue.stores[i]->news_fd()));
    const auto granted = queue.stores[i]->renew(queue.claims[i], {}, {}).grant;
    if (!granted && may_have_lapsed(handed_over)) return false;
    REQUIRE(granted);
    REQUIRE(queue.stores[i]->command_started(queue.claims[i], getpid()));
    CHECK(queue.state().waiters.size() == queue.stores.size() - i - 1);
    handed_over = BootClock::now();
    REQUIRE(queue.release(i) == Released::yes);
  }
  CHECK(!queue.state().in_use());
  return true;
}

/// Lists a queue of a hundred completely, and hands the lock to each in turn; false as above.
bool is_listed_and_hands_on() {
  LongQueue queue(100, exclusive);
  CHECK(std::get<Refusal>(queue.holder.acquire(claim_on("k"), {}, {})).waiting == 100);
  CHECK(queue.release(60) == Released::left_queue);
  queue.remove(60);
  const auto listed = queue.state().waiters;
  REQUIRE(listed.size() == 99);
  for (std::size_t i = 0; i < listed.size(); ++i) {
    CHECK(listed[i].position == i + 1);
    CHECK(listed[i].owner == queue.claims[i].owner.text);
  }
  return hands_on(queue);
}

/// Grants the lock to all readers of a queue at once; false as above.
bool readers_come_in_together() {
  LongQueue queue(120, no_limit, 100);
  const Deadline handed_over = BootClock::now();
  queue.let_in();
  const auto state = queue.state();
  if (state.holders.size() < 100 && may_have_lapsed(handed_over)) return false;
  CHECK(state.holders.size() == 100);
  REQUIRE(state.waiters.size() == 20);
  CHECK(state.waiters.front().owner == queue.claims[100].owner.text);
  for (std::size_t i = 0; i < 100; ++i) CHECK(readable(queue.stores[i]->news_fd()));
  return true;
}

}  // namespace

TEST_CASE("a long queue is listed whole, and each of its waiters is handed the lock in turn") {
  bool in_time = false;
  for (int tries = 0; tries < 5 && !in_time; ++tries) in_time = is_listed_and_hands_on();
  CHECK(in_time);
}

TEST_CASE("the readers of a long queue come in together, up to the writer among them") {
  bool in_time = false;
  for (int tries = 0; tries < 5 && !in_time; ++tries) in_time = readers_come_in_together();
  CHECK(in_time);
}
