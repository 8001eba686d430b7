#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/wait.hpp"
#include "cas/cas_store.hpp"

namespace dlock {
namespace {

/// The store keeps arrivals this long after their latch has expired.
constexpr std::chrono::hours arrival_memory{24 * 30};
constexpr milliseconds poll_pause_at_a_latch{1000};
constexpr std::string_view arrival_text = "dlock-arrival 1\n";
constexpr std::size_t generation_bytes = 16;
/// One in this many arrivals sweeps up to 50 old ones: about three for each new one.
constexpr int arrivals_per_sweep = 16;

}  // namespace

std::string CasStore::arrivals_at(const LatchRecord& latch) const {
  return prefix_ + "arrival:" + latch.generation + ":";
}

LatchState CasStore::latch_state(const LatchRecord& latch, const Snapshot& seen,
                                 const CallOptions& call_options) {
  const auto arrived = latch.open ? latch.count : backend_->count(arrivals_at(latch), call_options);
  const auto left = std::max(microseconds(0), latch.ends - seen.clock);
  return {latch.count, std::min(arrived, latch.count), std::chrono::ceil<milliseconds>(left)};
}

LatchState CasStore::open_latch(const LockKey& key, const LatchOptions& terms,
                                const CallOptions& call_options) {
  const std::string name = latch_record(key);
  LatchRecord latch;
  const auto make = [&](const Snapshot& seen, bool) -> std::optional<Update> {
    const auto there = latch_in(seen, backend_->name());
    const auto ends = seen.clock + terms.ttl;
    latch = there.value_or(LatchRecord{terms.count, ends, random_hex(generation_bytes), false});
    const bool extends = latch.count == terms.count && latch.ends < ends;
    if (there && !extends) return std::nullopt;
    latch.ends = std::max(latch.ends, ends);
    Update update{latch_text(latch), latch.ends};
    update.lasts = std::chrono::ceil<milliseconds>(latch.ends - seen.clock);
    return update;
  };
  const Snapshot before = read(name, call_options);
  const Snapshot seen = rewrite(name, before, call_options, make);
  LatchState state = latch_state(latch, seen, call_options);
  if (before.version == 0) {
    // The first fifty records may be long-lived, so another sweep begins after the new name.
    sweep(latch_record({}), latch_record({}), call_options);
    sweep(latch_record({}), name, call_options);
    sweep(prefix_ + "arrival:", prefix_ + "arrival:", call_options);
    sweep_arrivals(call_options);
  }
  return state;
}

/// Begins at a random name, because the first arrivals may be young and long-lived.
void CasStore::sweep_arrivals(const CallOptions& call_options) {
  const std::string all = prefix_ + "arrival:";
  sweep(all, all + random_hex(generation_bytes), call_options);
}

std::optional<LatchState> CasStore::arrive(const LockKey& key, const ArrivalId& id,
                                           const CallOptions& call_options) {
  const std::string name = latch_record(key);
  const Snapshot head = read(name, call_options);
  const auto latch = latch_in(head, backend_->name());
  if (!latch) return std::nullopt;
  if (latch->open) return latch_state(*latch, head, call_options);
  Snapshot none = head;
  none.text.clear();
  none.version = 0;
  const auto arrive_once = [&](const Snapshot& seen, bool) -> std::optional<Update> {
    if (!seen.text.empty()) return std::nullopt;
    return Update{std::string(arrival_text), latch->ends + arrival_memory};
  };
  rewrite(arrivals_at(*latch) + id.text, none, call_options, arrive_once);
  const LatchState state = latch_state(*latch, head, call_options);
  if (!state.open()) {
    if (once_in(arrivals_per_sweep)) sweep_arrivals(call_options);
    return state;
  }
  rewrite(name, head, call_options, [&](const Snapshot& seen, bool) -> std::optional<Update> {
    auto now = latch_in(seen, backend_->name());
    if (!now || now->generation != latch->generation || now->open) return std::nullopt;
    now->open = true;
    return Update{latch_text(*now), now->ends, {{"", "open"}}};
  });
  return state;
}

std::optional<LatchState> CasStore::look_at_latch(const LockKey& key, bool listen,
                                                  const CallOptions& call_options) {
  const Snapshot seen = read(latch_record(key), call_options);
  if (listen) last_answer_ = seen;
  const auto latch = latch_in(seen, backend_->name());
  if (!latch) return std::nullopt;
  return latch_state(*latch, seen, call_options);
}

Wake::Reason CasStore::sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) {
  const Deadline poll = later(BootClock::now(), poll_pause_at_a_latch);
  RecordWatch watch{latch_record(key), {}, {}, last_answer_.revision, poll};
  const auto heard = backend_->watch(watch, until, cancel_fd);
  last_answer_.revision = watch.after;
  const auto* why = std::get_if<Wake::Reason>(&heard);
  const bool is_end = why != nullptr && (*why != Wake::Reason::due || BootClock::now() >= until);
  return is_end ? *why : Wake::Reason::changed;
}

}  // namespace dlock
