#include "lock/latch.hpp"

#include "base/random.hpp"

namespace dlock {

ArrivalId new_arrival_id() {
  constexpr std::size_t random_bytes = 16;
  return ArrivalId{random_hex(random_bytes)};
}

}  // namespace dlock
