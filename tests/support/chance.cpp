#include "support/chance.hpp"

#include <cstdlib>
#include <string>
#include <thread>

namespace dlock::test {

std::uint64_t seed_of_this_run() {
  const char* given = std::getenv("DLOCK_TEST_SEED");
  return given != nullptr ? std::stoull(given) : std::random_device{}();
}

int runs_of_this_test(int usually) {
  const char* given = std::getenv("DLOCK_TEST_RUNS");
  return given != nullptr ? std::stoi(given) : usually;
}

milliseconds Chance::between(milliseconds least, milliseconds most) {
  return least + milliseconds(up_to(static_cast<int>((most - least).count())));
}

void Chance::pause_up_to(microseconds most) {
  std::this_thread::sleep_for(microseconds(up_to(static_cast<int>(most.count()))));
}

}  // namespace dlock::test
