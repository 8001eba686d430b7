#include "lock/outage.hpp"

#include <algorithm>

#include "base/random.hpp"

namespace dlock {

void Outage::go_on(const Error& why, Deadline until, int cancel_fd) {
  if (!since_) {
    since_ = BootClock::now();
    listener_.server_lost(why.what());
  }
  const auto half = pauses_.next() / 2;
  sleep_until(std::min(later(BootClock::now(), half + random_up_to(half)), until), cancel_fd);
}

void Outage::end() {
  reached_ = true;
  if (!since_) return;
  listener_.server_back(passed_since(*since_));
  since_.reset();
  pauses_ = usual;
}

}  // namespace dlock
