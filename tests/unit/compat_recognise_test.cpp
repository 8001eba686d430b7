#include <doctest/doctest.h>

#include "compat/foreign_lock.hpp"

namespace dlock {
namespace {

std::string library_of(std::string_view key, std::string_view value) {
  const auto seen = holder_in_string(key, value);
  return seen ? seen->library : "";
}

}  // namespace

TEST_CASE("a lock's value tells its library, as far as the libraries differ") {
  CHECK(library_of("k", "c1b7f6a0e58c4f0e8b1d2a3c4d5e6f70") == "node-redlock or redlock-universal");
  CHECK(library_of("k", "Yc3Rq1p8m0Vn5t7x9z2b4A==") == "redsync");
  CHECK(library_of("lock:k", "q0V3s9T0m1n2b3v4c5x6z7l8") == "python-redis-lock");
  CHECK(library_of("session:k", "q0V3s9T0m1n2b3v4c5x6z7l8") == "");
  CHECK(library_of("redlock:k", "0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21") ==
        "RedLock.net or pottery");
  CHECK(library_of("mutex:k", "0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21") == "redis-semaphore");
  CHECK(library_of("reg:k", "0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21") ==
        "Spring, redlock-rb or aioredlock");
  CHECK(library_of("k", "aB3dE6gH9jK2mN5p") == "Laravel");
  CHECK(library_of("k", "aB3dE6gH9jK2mN5pQ8rS") == "redis-plus-plus");
  CHECK(library_of("k", std::string(20, '\xfe')) == "rslock");
  CHECK(library_of("k", "web1_4242_c1b7f6a0e58c4f0e8b1d2a3c4d5e6f70") == "DistributedLock");
  CHECK(library_of("k", "") == "");
  CHECK(library_of("k", "hello") == "");
  CHECK(library_of("k", std::string(200, 'a')) == "");
}

TEST_CASE("a lock's value tells host and time where the library writes them") {
  const auto shedlock =
      holder_in_string("job-lock:default:k", "ADDED:2026-01-02T03:04:05.678Z@web1:uuid");
  REQUIRE(shedlock);
  CHECK(shedlock->library == "ShedLock");
  CHECK(shedlock->who.host == "web1");
  CHECK(iso8601(shedlock->acquired_at) == "2026-01-02T03:04:05.678Z");
  CHECK(holder_in_string("k", "ADDED:soon@web1:uuid")->acquired_at == WallTime());
  CHECK(holder_in_string("k", "ADDED:")->acquired_at == WallTime());
  // A uuid1 of 2026-01-02T03:04:05Z.
  const auto python = holder_in_string("k", "b282c080e78711f08000000000000001");
  REQUIRE(python);
  CHECK(python->library == "redis-py");
  CHECK(iso8601(python->acquired_at) == "2026-01-02T03:04:05.000Z");
}

TEST_CASE("fields and members of other locks are told from those of other data") {
  CHECK(is_redisson_owner("0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21:33"));
  CHECK(is_redisson_owner("0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21:-33"));
  CHECK(!is_redisson_owner("0b0f5f7e-6c1c-4c8e-8f3a-3f1d5a9b7c21:"));
  CHECK(!is_redisson_owner("user:33"));
  CHECK(!is_redisson_owner(""));
  CHECK(is_symfony_member("q0V3s9T0m1n2b3v4c5x6z7l8k9j0h1g2f3d4s5a6p7o="));
  CHECK(is_symfony_member("__write__"));
  CHECK(!is_symfony_member("alice"));
}

}  // namespace dlock
