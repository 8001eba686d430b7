#include "contract/in_step.hpp"

#include <algorithm>
#include <utility>

namespace dlock::test {
namespace {

ClockReading clock_of_this_host() {
  static const auto booted_at = wall_now().time_since_epoch() - BootClock::now().time_since_epoch();
  const Deadline now = BootClock::now();
  return {std::chrono::floor<microseconds>(booted_at + now.time_since_epoch()), now, now};
}

}  // namespace

std::uint64_t NodesInStep::ask(std::size_t member, NodeRequest request, Deadline deadline) {
  return owed_[member] = nodes_->ask(member, std::move(request), deadline);
}

std::optional<NodeReply> NodesInStep::hear(Deadline until, int cancel_fd) {
  // A client that only collects arrived replies waits for the other nodes, too; a stalled node
  // costs it this time at each call.
  constexpr milliseconds least_for_others{500};
  const auto others = std::max(until, later(BootClock::now(), least_for_others));
  while (any_owes()) {
    auto reply = nodes_->hear(others, cancel_fd);
    if (!reply) break;
    if (reply->request == owed_[reply->node]) owed_[reply->node] = 0;
    if (reply->standing.clock) reply->standing.clock = clock_of_this_host();
    heard_.push_back(std::move(*reply));
  }
  if (heard_.empty()) return nodes_->hear(until, cancel_fd);
  NodeReply first = std::move(heard_.front());
  heard_.pop_front();
  return first;
}

void NodesInStep::begin_anew() {
  nodes_->begin_anew();
  owed_.assign(size(), 0);
  heard_.clear();
}

bool NodesInStep::any_owes() const {
  return std::any_of(owed_.begin(), owed_.end(), [](std::uint64_t owed) { return owed != 0; });
}

}  // namespace dlock::test
