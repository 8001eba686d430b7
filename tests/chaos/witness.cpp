#include "witness.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "lock/acquire.hpp"
#include "lock/release.hpp"
#include "support/counted_majority.hpp"
#include "support/silent_listener.hpp"

namespace dlock::test {
namespace {

std::int64_t ns_of(Deadline at) { return at.time_since_epoch().count(); }

}  // namespace

Witness::Witness(const Fleet& fleet, std::uint64_t seed, std::string key)
    : chance_(seed), key_(std::move(key)) {
  for (std::size_t i = 0; i < fleet.size(); ++i) servers_.push_back(fleet.proxy(i).address());
  thread_ = std::thread([this] { work(); });
}

void Witness::stop() {
  end_.raise();
  if (thread_.joinable()) thread_.join();
}

void Witness::work() {
  while (!end_.raised()) {
    try {
      take_it_once();
    } catch (const Error&) {
      // No majority is reachable.
    }
    chance_.pause_up_to(milliseconds(100));
  }
}

void Witness::take_it_once() {
  Claim claim;
  claim.key.text = key_;
  claim.owner = new_owner_below(std::nullopt);
  claim.token = new_token(claim.owner);
  claim.ttl = milliseconds(2000);
  claim.who = this_process("witness", "");
  Exchanges exchanges(servers_.size());
  const StorePtr store = counted_majority(servers_, exchanges);
  SilentListener listener;
  const auto acquired = acquire(*store, {claim}, {milliseconds(5000), end_.fd(), {}}, listener);
  const auto* all = std::get_if<std::vector<dlock::Held>>(&acquired);
  if (all == nullptr) return;
  ++exchanges_[exchanges.taken()];
  const Grant& grant = all->front().grant;
  const auto first = BootClock::now();
  chance_.pause_up_to(milliseconds(20));
  const auto last = std::min(BootClock::now(), grant.lease.valid_until);
  if (last > first) {
    held_.push_back({grant.fence.value, ns_of(first), ns_of(last), false, "witness"});
  }
  release_all(*store, *all, milliseconds(2000));
}

}  // namespace dlock::test
