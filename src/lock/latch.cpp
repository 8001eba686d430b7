#include "lock/latch.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "base/random.hpp"

namespace dlock {
namespace {

constexpr std::size_t digits_of_time = 16;

}  // namespace

std::string new_generation() {
  constexpr std::size_t random_bytes = 8;
  char time[digits_of_time + 1];
  std::snprintf(time, sizeof time, "%016" PRIx64,
                static_cast<std::uint64_t>(wall_now().time_since_epoch().count()));
  return time + random_hex(random_bytes);
}

WallTime made_at(const std::string& generation) {
  std::int64_t us = 0;
  const char* begin = generation.data();
  std::from_chars(begin, begin + std::min(generation.size(), digits_of_time), us, 16);
  return WallTime(microseconds(us));
}

ArrivalId new_arrival_id() {
  constexpr std::size_t random_bytes = 16;
  return ArrivalId{random_hex(random_bytes)};
}

}  // namespace dlock
