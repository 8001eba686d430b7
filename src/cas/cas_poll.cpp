#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "cas/cas_store.hpp"

namespace dlock {
namespace {

constexpr milliseconds first_pause_of_poll{20};
/// The first few waiters in the queue poll often, the others rarely.
constexpr std::ptrdiff_t few = 4;
constexpr milliseconds longest_pause_of_few{500};
constexpr milliseconds pause_of_others{2000};
/// The pause is this fraction of the time waited so far.
constexpr int part_of_wait = 20;
constexpr milliseconds longest_look{5000};
/// A read may last this long beyond the end of the sleep: a silent server must not prolong a wait.
constexpr milliseconds time_for_last_look{200};
/// The second waiter reads this often if it cannot watch the holder: the first may be granted the
/// lock and never confirm it, and then nobody departs.
constexpr milliseconds pause_of_second{1000};
/// The first two waiters watch the holder at most this long before they read the record. An evicted
/// holder departs only when it learns of the eviction, and half of the short lease of the hand-over
/// must be left by then.
constexpr milliseconds longest_watch_of_holder{2500};
constexpr int part_of_ttl = 3;

/// Returns the grant of a waiter after a hand-over, read from the record; nothing if half of its
/// short lease is over.
std::optional<Grant> seen_grant(const HoldEntry& hold, const Snapshot& seen) {
  const auto left = std::chrono::floor<milliseconds>(left_of(hold, seen.clock));
  const Deadline until = valid_until(seen.sent, left);
  if (until - BootClock::now() < hold.lease / 2) return std::nullopt;
  return Grant{hold.fence, Lease{hold.lease, until}, false};
}

}  // namespace

/// Returns the client whose departure a waiter waits for. The first two waiters watch the holder,
/// if it blocks both; so both see the result of the hand-over. All others watch the waiter before
/// them, which departs first.
CasStore::ToWatch CasStore::to_watch(const Claim& claim, const Snapshot& seen,
                                     const std::string& in_vain) const {
  if (!seen.alive) return {};
  const OpenRecord record(claim.key, claim.token, seen, backend_->name());
  const auto& queue = record.table.queue;
  const auto own = std::find_if(queue.begin(), queue.end(),
                                [&](const auto& each) { return each.token == claim.token; });
  if (own == queue.end()) return {};
  const auto channel_of = [&](const std::string& address) {
    const bool lives = seen.alive->contains(connection_in(address));
    return lives && channel_in(address) != in_vain ? channel_in(address) : "";
  };
  const auto place = own - queue.begin();
  const auto holds = record.table.live_holds(record.now);
  if (place < 2 && holds.size() == 1) {
    const HoldEntry& hold = holds.front();
    const bool blocks = place == 0 || hold.limit == exclusive || own->limit == exclusive;
    const std::string channel = blocks ? channel_of(hold.backing.mailbox) : "";
    if (!channel.empty()) {
      return {{channel, place == 1},
              std::clamp(claim.ttl / part_of_ttl, longest_pause_of_few, longest_watch_of_holder)};
    }
  }
  if (place == 0 || std::prev(own)->limit != exclusive) return {};
  return {{channel_of(std::prev(own)->backing.mailbox)},
          place == 1 ? std::optional(pause_of_second) : std::nullopt};
}

/// For a connection without messages: waits until the client before this one departs, or reads the
/// record now and then.
Wake CasStore::poll(const Claim& claim, Deadline until, int cancel_fd) {
  milliseconds pause = first_pause_of_poll;
  std::string in_vain;  // the client on this channel seemed to depart, but has not
  while (true) {
    const auto [client, look_after] = to_watch(claim, last_answer_, in_vain);
    std::optional<Wake::Reason> why;
    if (backend_->is_crowded()) {
      backend_->close();
    } else if (!client.channel.empty()) {
      const Deadline look = look_after ? later(BootClock::now(), *look_after) : until;
      why = backend_->await_departure(client, std::min(until, look), cancel_fd);
    }
    if (why == Wake::Reason::changed) in_vain = client.channel;
    if (!why) {
      const auto next = later(BootClock::now(), pause);
      if (sleep_until(std::min(until, next), cancel_fd)) why = Wake::Reason::interrupted;
    }
    if (why == Wake::Reason::interrupted) return Wake{Wake::Reason::interrupted, {}};
    if (BootClock::now() >= until) return Wake{Wake::Reason::due, {}};
    const Deadline longest = later(BootClock::now(), longest_look);
    try {
      last_answer_ =
          backend_->read(lock_record(claim.key), "",
                         {std::min(longest, later(until, time_for_last_look)), cancel_fd});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable || BootClock::now() < until) throw;
      return Wake{Wake::Reason::due, {}};
    }
    if (auto wake = look(claim, last_answer_, until, pause)) return *wake;
  }
}

/// Returns the wake-up if the record shows that the waiter must wake before `until`; sets the pause
/// until the next read.
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
  // No hold blocks, or the blocking holds have expired: the next request decides by the rule.
  if (!ends || *ends <= BootClock::now()) return Wake{Wake::Reason::due, {}};
  if (later(*ends, first_pause_of_poll) < until) return Wake{Wake::Reason::changed, *ends};
  return std::nullopt;
}

}  // namespace dlock
