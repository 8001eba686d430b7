#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "cas/cas_store.hpp"

namespace dlock {
namespace {

/// Arrivals are kept this long after their latch has ended.
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

std::string CasStore::latch_channel(const LockKey& key) const {
  std::array<char, 16> digits{};
  const auto hash = fnv1a(latch_record(key));
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16).ptr;
  return "dlock_latch_" + std::string(digits.data(), end);
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
  const Snapshot before = backend_->read(name, "", call_options);
  const Snapshot seen = rewrite(name, "", before, call_options, make);
  LatchState state = latch_state(latch, seen, call_options);
  if (before.version == 0) {
    // The first fifty records may be long-lived, so this also looks at those after the new name.
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
  const Snapshot head = backend_->read(name, "", call_options);
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
  rewrite(arrivals_at(*latch) + id.text, "", none, call_options, arrive_once);
  const LatchState state = latch_state(*latch, head, call_options);
  if (!state.open()) {
    if (once_in(arrivals_per_sweep)) sweep_arrivals(call_options);
    return state;
  }
  rewrite(name, "", head, call_options, [&](const Snapshot& seen, bool) -> std::optional<Update> {
    auto now = latch_in(seen, backend_->name());
    if (!now || now->generation != latch->generation || now->open) return std::nullopt;
    now->open = true;
    return Update{latch_text(*now), now->ends, {{latch_channel(key), "open"}}};
  });
  return state;
}

std::optional<LatchState> CasStore::look_at_latch(const LockKey& key, bool listen,
                                                  const CallOptions& call_options) {
  const std::string channel = listen ? latch_channel(key) : "";
  const Snapshot seen = backend_->read(latch_record(key), channel, call_options);
  const auto latch = latch_in(seen, backend_->name());
  if (!latch) return std::nullopt;
  return latch_state(*latch, seen, call_options);
}

std::optional<LatchState> CasStore::latch_of(const LockKey& key, const CallOptions& call_options) {
  return look_at_latch(key, false, call_options);
}

Wake::Reason CasStore::sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) {
  if (!backend_->hears_messages()) {
    if (backend_->is_crowded()) backend_->close();
    const auto next = later(BootClock::now(), poll_pause_at_a_latch);
    if (sleep_until(std::min(until, next), cancel_fd)) return Wake::Reason::interrupted;
    return next < until ? Wake::Reason::changed : Wake::Reason::due;
  }
  const auto heard = backend_->next_message(latch_channel(key), until, cancel_fd);
  const auto* why = std::get_if<Wake::Reason>(&heard);
  return why != nullptr ? *why : Wake::Reason::changed;
}

}  // namespace dlock
