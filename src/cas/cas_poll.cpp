#include <algorithm>

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

}  // namespace

/// For a connection that hears no messages: looks at the record now and then.
Wake CasStore::poll(const Claim& claim, Deadline until, int cancel_fd) {
  milliseconds pause = first_pause_of_poll;
  while (true) {
    pollfd fds[] = {{cancel_fd, POLLIN, 0}};
    const auto next = later(BootClock::now(), pause);
    if (poll_until(fds, std::min(until, next)) != 0) return Wake{Wake::Reason::interrupted, {}};
    if (BootClock::now() >= until) return Wake{Wake::Reason::due, {}};
    const Snapshot seen = backend_->read(lock_record(claim.key), "",
                                         {later(BootClock::now(), longest_look), cancel_fd});
    if (auto wake = look(claim, seen, until, pause)) return *wake;
  }
}

/// Reads from the record whether a waiter wakes before `until`; sets the pause until the next look.
std::optional<Wake> CasStore::look(const Claim& claim, const Snapshot& seen, Deadline until,
                                   milliseconds& pause) const {
  OpenRecord record(claim.key, claim.token, seen, backend_->name());
  const HoldEntry* own = record.table.find_hold(claim.token);
  if (own != nullptr && own->inside()) return Wake{Wake::Reason::granted, {}};
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
