#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cas/cas_store.hpp"
#include "rule/lock_table.hpp"

namespace dlock {
namespace {

bool is_wanted(const std::string& key, const Query& query) {
  const bool named = std::any_of(query.keys.begin(), query.keys.end(),
                                 [&](const LockKey& each) { return each.text == key; });
  return !named && matches_any(key, query.globs);
}

/// Calls `take` for every record whose name begins with `prefix`, with the key that follows it.
template <typename Take>
void for_each_record(CasBackend& backend, const std::string& prefix,
                     const CallOptions& call_options, const Take& take) {
  std::string after = prefix;
  while (true) {
    const RecordPage page = backend.list(prefix, after, call_options);
    for (const NamedRecord& record : page.records) {
      if (!record.name.starts_with(prefix)) throw_unavailable(backend.name() + ": no answer");
      // A glob may match any data on the server; only a key that the user named must be a lock.
      try {
        take(LockKey{record.name.substr(prefix.size())}, record.seen);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::wrong_data) throw;
      }
      after = record.name;
    }
    if (page.last) return;
  }
}

}  // namespace

KeyState CasStore::state_from(const LockKey& key, const Snapshot& seen,
                              const CallOptions& call_options) const {
  KeyState state{key};
  OpenRecord record = open(key, Token{}, seen);
  if (leases_ != nullptr) date_by_leases(record, seen, call_options);
  state.holders = holders_from(record.table.live_holds(record.now), record.now);
  if (state.holders.empty()) state.last = recent_grant(record.table, record.now);
  for (const WaiterEntry& entry : record.table.queue) {
    state.waiters.push_back(waiter_from(entry, state.waiters.size() + 1, record.now));
  }
  return state;
}

/// Sets the times of holds, for display, to what the engine reports of their leases.
void CasStore::date_by_leases(OpenRecord& record, const Snapshot& seen,
                              const CallOptions& call_options) const {
  std::vector<HoldEntry*> holds;
  std::vector<std::int64_t> leases;
  for (HoldEntry& hold : record.table.holds) {
    const auto life = seen.lives->ids.find(record.to_watch(hold));
    if (life == seen.lives->ids.end()) continue;
    holds.push_back(&hold);
    leases.push_back(life->second);
  }
  if (leases.empty()) return;
  const auto left = leases_->left_of(leases, call_options);
  for (std::size_t i = 0; i < holds.size(); ++i) {
    // A lease that expired after the record was read still counts, as it did at the read.
    holds[i]->lease = std::max(left[i].length, milliseconds(1));
    const auto passed = left[i].length - std::max(left[i].left, milliseconds(1));
    holds[i]->at = record.now.lease_clock - std::max(passed, milliseconds(0));
  }
}

/// The keys with a lock or a latch that match the globs, in the order of their names.
std::map<LockKey, KeyState> CasStore::matching(const Query& query,
                                               const CallOptions& call_options) {
  std::map<LockKey, KeyState> states;
  for_each_record(*backend_, prefix_ + "k:", call_options,
                  [&](const LockKey& key, const Snapshot& seen) {
                    if (is_wanted(key.text, query)) {
                      states.emplace(key, state_from(key, seen, call_options));
                    }
                  });
  for_each_record(*backend_, prefix_ + "latch:", call_options,
                  [&](const LockKey& key, const Snapshot& seen) {
                    if (!is_wanted(key.text, query)) return;
                    const auto latch = latch_in(seen, backend_->name());
                    if (!latch) return;
                    states.try_emplace(key, KeyState{key}).first->second.latch =
                        latch_state(*latch, seen, call_options);
                  });
  return states;
}

std::vector<KeyState> CasStore::inspect(const Query& query, const CallOptions& call_options) {
  std::vector<KeyState> states;
  for (const LockKey& key : query.keys) {
    states.push_back(state_from(key, read(lock_record(key), call_options), call_options));
    states.back().latch = look_at_latch(key, false, call_options);
  }
  if (query.globs.empty()) return states;
  for (auto& [key, state] : matching(query, call_options)) {
    if (query.lists(state)) states.push_back(std::move(state));
  }
  return states;
}

}  // namespace dlock
