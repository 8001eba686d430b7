#include <algorithm>

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

/// Calls `take` with every record whose name begins with `prefix`, and the key that follows there.
template <typename Take>
void for_each_record(CasBackend& backend, const std::string& prefix,
                     const CallOptions& call_options, const Take& take) {
  std::string after = prefix;
  while (true) {
    const RecordPage page = backend.list(prefix, after, call_options);
    for (const NamedRecord& record : page.records) {
      if (!record.name.starts_with(prefix)) throw_unavailable(backend.name() + ": no answer");
      Snapshot seen = page.read;
      seen.text = record.text;
      if (record.clock) seen.clock = *record.clock;
      if (seen.lives) seen.lives = record.lives;
      // A glob meets whatever lies in the place; only a key that the user has named must be a lock.
      try {
        take(LockKey{record.name.substr(prefix.size())}, seen);
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
  OpenRecord record(key, Token{}, seen, backend_->name());
  if (leases_) date_by_leases(record.table, record, seen, call_options);
  state.holders = holders_from(record.table.live_holds(record.now), record.now);
  if (state.holders.empty()) state.last = recent_grant(record.table, record.now);
  for (const WaiterEntry& entry : record.table.queue) {
    state.waiters.push_back(waiter_from(entry, state.waiters.size() + 1, record.now));
  }
  return state;
}

std::vector<KeyState> CasStore::matching_locks(const Query& query,
                                               const CallOptions& call_options) {
  std::vector<KeyState> states;
  for_each_record(*backend_, prefix_ + "k:", call_options,
                  [&](const LockKey& key, const auto& seen) {
                    if (is_wanted(key.text, query)) {
                      states.push_back(state_from(key, seen, call_options));
                    }
                  });
  return states;
}

void CasStore::add_matching_latches(std::vector<KeyState>& states, const Query& query,
                                    const CallOptions& call_options) {
  std::vector<std::pair<LockKey, Snapshot>> heads;
  for_each_record(*backend_, prefix_ + "latch:", call_options,
                  [&](const LockKey& key, const Snapshot& seen) {
                    if (is_wanted(key.text, query)) heads.emplace_back(key, seen);
                  });
  for (const auto& [key, seen] : heads) {
    const auto latch = latch_in(seen, backend_->name());
    if (!latch) continue;
    const auto same = [&wanted = key](const KeyState& state) { return state.key == wanted; };
    auto state = std::find_if(states.begin(), states.end(), same);
    if (state == states.end()) state = states.insert(states.end(), KeyState{key});
    state->latch = latch_state(*latch, seen, call_options);
  }
}

std::vector<KeyState> CasStore::inspect(const Query& query, const CallOptions& call_options) {
  std::vector<KeyState> named;
  for (const LockKey& key : query.keys) {
    const Snapshot seen = backend_->read(lock_record(key), "", call_options);
    named.push_back(state_from(key, seen, call_options));
    named.back().latch = latch_of(key, call_options);
  }
  if (query.globs.empty()) return named;
  auto matching = matching_locks(query, call_options);
  add_matching_latches(matching, query, call_options);
  std::erase_if(matching, [](const KeyState& state) { return !state.in_use(); });
  std::sort(matching.begin(), matching.end(),
            [](const KeyState& a, const KeyState& b) { return a.key < b.key; });
  named.insert(named.end(), matching.begin(), matching.end());
  return named;
}

}  // namespace dlock
