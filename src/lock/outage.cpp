#include "lock/outage.hpp"

#include <algorithm>
#include <utility>

#include "base/random.hpp"

namespace dlock {
namespace {

bool is_absent(Cause why) {
  return why == Cause::none || why == Cause::not_looked_up || why == Cause::tls_interrupted;
}

}  // namespace

bool Outage::may_pass(const Error& why) const {
  if (is_refused_login(why.cause())) return reached_;
  if (why.kind() != ErrorKind::unavailable) return false;
  return reached_ || says_later(why.cause()) || (wait_is_chosen_ && is_absent(why.cause()));
}

void Outage::go_on(const Error& why, Deadline until, int cancel_fd) {
  reached_ = reached_ || says_later(why.cause());
  const bool first_refusal = is_refused_login(why.cause()) && !std::exchange(login_refused_, true);
  // Report only the second failure: the first retry restores a connection that was idle for too
  // long.
  const bool lasting = since_.has_value() && !told_;
  if (lasting || first_refusal) listener_.server_lost(why.what());
  told_ = told_ || lasting || first_refusal;
  if (!since_) since_ = BootClock::now();
  const auto half = pauses_.next() / 2;
  sleep_until(std::min(later(BootClock::now(), half + random_up_to(half)), until), cancel_fd);
}

void Outage::end() {
  reached_ = true;
  if (!since_) return;
  if (std::exchange(told_, false)) listener_.server_back(passed_since(*since_));
  since_.reset();
  login_refused_ = false;
  pauses_ = usual;
}

}  // namespace dlock
