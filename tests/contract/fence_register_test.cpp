// The fence register of `guard` on servers. On this host it is a file, tested with the local
// engine.

#include <atomic>
#include <thread>
#include <vector>

#include "contract/engines.hpp"
#include "lock/store.hpp"

namespace dlock::test {
namespace {

Fence record_max(Store& store, const std::string& resource, std::int64_t fence) {
  return dynamic_cast<FenceRegister&>(store).record_max(LockKey{resource}, Fence{fence}, soon());
}

}  // namespace

TEST_CASE_TEMPLATE("a seal is the largest fence that came to its resource", Engine,
                   DeployedEngine) {
  Engine engine;
  const auto one = engine.open(), other = engine.open();
  CHECK(record_max(*one, "r", 0) == Fence{0});
  CHECK(record_max(*one, "r", 99) == Fence{99});
  CHECK(record_max(*other, "r", 98) == Fence{99});
  CHECK(record_max(*other, "r", 99) == Fence{99});
  CHECK(record_max(*other, "r", 100) == Fence{100});
  CHECK(record_max(*one, "r", 99) == Fence{100});
  CHECK(record_max(*one, "r{}%", 1) == Fence{1});
  CHECK(record_max(*one, "r", largest_fence) == Fence{largest_fence});
  CHECK(record_max(*other, "r", largest_fence - 1) == Fence{largest_fence});
}

TEST_CASE_TEMPLATE("of seals at the same time none falls behind one that was answered", Engine,
                   DeployedEngine) {
  constexpr std::int64_t rounds = 25;
  constexpr std::int64_t clients = 4;
  Engine engine;
  std::atomic<std::int64_t> recorded = 0;
  std::atomic<int> inversions = 0;
  const auto work = [&](std::int64_t client) {
    const auto store = engine.open();
    for (std::int64_t i = 0; i < rounds; ++i) {
      const std::int64_t before = recorded;
      const std::int64_t fence = (i * 7 + client * 11) % (rounds * clients);
      if (record_max(*store, "r", fence) != Fence{fence}) continue;
      if (fence < before) ++inversions;
      std::int64_t known = recorded;
      while (known < fence && !recorded.compare_exchange_weak(known, fence)) {
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::int64_t client = 0; client < clients; ++client) threads.emplace_back(work, client);
  for (std::thread& thread : threads) thread.join();
  CHECK(inversions == 0);
  CHECK(recorded == rounds * clients - 1);
  const auto store = engine.open();
  CHECK(record_max(*store, "r", recorded - 1) != Fence{recorded - 1});
}

}  // namespace dlock::test
