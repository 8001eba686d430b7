#include <algorithm>
#include <iterator>

#include "base/wait.hpp"
#include "cas/cas_store.hpp"

namespace dlock {
namespace {

constexpr milliseconds first_pause_of_poll{20};
/// The first few in the queue look often, the others seldom.
constexpr std::ptrdiff_t few = 4;
constexpr milliseconds longest_pause_of_few{500};
constexpr milliseconds pause_of_others{2000};
/// The pause is this part of the time that the waiter has waited.
constexpr int part_of_wait = 20;
constexpr milliseconds longest_look{5000};
/// The second in the queue looks so often: the first may be granted the lock and not take it, and
/// nothing departs then.
constexpr milliseconds pause_of_second{1000};

/// What a record says of a hold that was handed over; nothing if its short lease is half over.
std::optional<Grant> seen_grant(const HoldEntry& hold, const Snapshot& seen) {
  const auto left = std::chrono::floor<milliseconds>(left_of(hold, seen.clock));
  const Deadline until = valid_until(seen.sent, left);
  if (until - BootClock::now() < hold.lease / 2) return std::nullopt;
  return Grant{hold.fence, Lease{hold.lease, until}, false};
}

}  // namespace

/// The channel of the client that a waiter cannot be granted the lock before: it departs first.
/// Empty if several may go first, or if nobody can see that one go.
std::string CasStore::channel_before(const Claim& claim, const Snapshot& seen) const {
  if (!seen.alive) return "";
  const OpenRecord record(claim.key, claim.token, seen, backend_->name());
  const auto& queue = record.table.queue;
  const auto own = std::find_if(queue.begin(), queue.end(),
                                [&](const auto& each) { return each.token == claim.token; });
  if (own == queue.end()) return "";
  std::string address;
  if (own != queue.begin()) {
    const WaiterEntry& before = *std::prev(own);
    if (before.limit == exclusive) address = before.backing.mailbox;
  } else {
    const auto holds = record.table.live_holds(record.now);
    if (holds.size() == 1) address = holds.front().backing.mailbox;
  }
  return seen.alive->contains(connection_in(address)) ? channel_in(address) : "";
}

bool CasStore::is_second(const Claim& claim, const Snapshot& seen) const {
  const OpenRecord record(claim.key, claim.token, seen, backend_->name());
  return record.table.queue.size() > 1 && record.table.queue[1].token == claim.token;
}

/// For a connection that hears no messages: waits until the client before this one departs, or
/// looks at the record now and then.
Wake CasStore::poll(const Claim& claim, Deadline until, int cancel_fd) {
  milliseconds pause = first_pause_of_poll;
  std::string in_vain;  // its client was seen to depart, and has not
  while (true) {
    const std::string before = channel_before(claim, last_answer_);
    std::optional<Wake::Reason> why;
    if (!before.empty() && before != in_vain) {
      const Deadline next = later(BootClock::now(), pause_of_second);
      const bool second = is_second(claim, last_answer_);
      why = backend_->await_departure(before, second ? std::min(until, next) : until, cancel_fd);
    }
    if (why == Wake::Reason::changed) in_vain = before;
    if (!why) {
      pollfd fds[] = {{cancel_fd, POLLIN, 0}};
      const auto next = later(BootClock::now(), pause);
      if (poll_until(fds, std::min(until, next)) != 0) why = Wake::Reason::interrupted;
    }
    if (why == Wake::Reason::interrupted) return Wake{Wake::Reason::interrupted, {}};
    if (BootClock::now() >= until) return Wake{Wake::Reason::due, {}};
    last_answer_ = backend_->read(lock_record(claim.key), "",
                                  {later(BootClock::now(), longest_look), cancel_fd});
    if (auto wake = look(claim, last_answer_, until, pause)) return *wake;
  }
}

/// Reads from the record whether a waiter wakes before `until`; sets the pause until the next look.
std::optional<Wake> CasStore::look(const Claim& claim, const Snapshot& seen, Deadline until,
                                   milliseconds& pause) const {
  OpenRecord record(claim.key, claim.token, seen, backend_->name());
  const HoldEntry* own = record.table.find_hold(claim.token);
  if (own != nullptr && own->inside()) {
    return Wake{Wake::Reason::granted, {}, seen_grant(*own, seen)};
  }
  const auto place = record.table.find_waiter(claim.token);
  if (place == record.table.queue.end()) return Wake{Wake::Reason::due, {}};
  const auto waited = seen.clock - microseconds(place->ticket.value);
  pause = place - record.table.queue.begin() < few
              ? std::clamp(std::chrono::floor<milliseconds>(waited / part_of_wait),
                           first_pause_of_poll, longest_pause_of_few)
              : pause_of_others;
  std::optional<Deadline> ends;
  for (const HoldEntry& hold : record.table.live_holds(record.now)) {
    const Deadline end = later(seen.sent, left_of(hold, seen.clock) + milliseconds(1));
    ends = std::min(ends.value_or(end), end);
  }
  // Nothing blocks, or what did has ended: then the rule decides at the next ask.
  if (!ends || *ends <= BootClock::now()) return Wake{Wake::Reason::due, {}};
  if (later(*ends, first_pause_of_poll) < until) return Wake{Wake::Reason::changed, *ends};
  return std::nullopt;
}

}  // namespace dlock
