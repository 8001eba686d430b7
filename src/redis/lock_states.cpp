#include "redis/lock_states.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <unordered_map>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "redis/protocol_text.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

const Reply& checked(const Reply& reply) {
  if (reply.is_error()) throw server_error(reply);
  return reply;
}

std::int64_t server_now(const Reply& time) {
  if (!checked(time).is_array(2)) throw Error(Trouble::unavailable, "it answered no time");
  constexpr std::int64_t us_a_second = 1'000'000;
  constexpr std::int64_t largest_second = 9'000'000'000;  // of the year 2255
  return server_number(time.items[0].text, largest_second) * us_a_second +
         server_number(time.items[1].text, us_a_second);
}

std::vector<Holder> holders_in(const Reply& hash, std::int64_t now) {
  std::vector<Hold> holds;
  for (std::size_t i = 1; i < checked(hash).items.size(); i += 2) {
    const StoredHold stored = parse_hold(hash.items[i].text, now);
    if (stored.live) holds.push_back(stored.hold);
  }
  return holders_of(std::move(holds));
}

std::vector<Waiter> waiters_in(const Reply& queue, const Reply& hash, std::int64_t now) {
  std::unordered_map<std::string_view, std::string_view> entries;
  for (std::size_t i = 0; i + 1 < checked(hash).items.size(); i += 2) {
    entries.emplace(hash.items[i].text, hash.items[i + 1].text);
  }
  std::vector<Waiter> waiters;
  for (std::size_t i = 0; i + 1 < checked(queue).items.size(); i += 2) {
    const auto entry = entries.find(queue.items[i].text);
    if (entry == entries.end()) continue;
    waiters.push_back(parse_waiter(entry->second, server_number(queue.items[i + 1].text), now));
    waiters.back().position = waiters.size();
  }
  return waiters;
}

KeyState state_of(const LockKey& key, std::span<const Reply> replies) {
  const std::int64_t now = server_now(replies[3]);
  return KeyState{key, holders_in(replies[0], now), waiters_in(replies[1], replies[2], now)};
}

/// What becomes of a key that holds something else: named by the user it is an error, met by a glob
/// it is none of ours.
enum class NotALock { reported, skipped };

std::vector<KeyState> states_of(const std::vector<LockKey>& keys, NotALock not_a_lock,
                                const LockReader& reader) {
  std::vector<Request> requests;
  for (const LockKey& key : keys) {
    const KeyNames names(reader.prefix, key);
    requests.push_back({"HGETALL", names.holds});
    requests.push_back({"ZRANGE", names.queue, "0", "-1", "WITHSCORES"});
    requests.push_back({"HGETALL", names.waiters});
    requests.push_back({"TIME"});
  }
  const auto replies = reader.read(keys, requests);
  std::vector<KeyState> states;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    try {
      states.push_back(
          state_of(keys[i], std::span(replies).subspan(i * requests_a_key, requests_a_key)));
    } catch (const Error& error) {
      if (error.trouble() == Trouble::wrong_data && not_a_lock == NotALock::skipped) continue;
      throw Error(error.trouble(),
                  reader.name + ": " + escaped(keys[i].text) + ": " + error.what());
    }
  }
  return states;
}

/// The same in portions, so that no write and no set of replies grows without bound.
std::vector<KeyState> states_in_portions(const std::vector<LockKey>& keys, NotALock not_a_lock,
                                         const LockReader& reader) {
  constexpr std::ptrdiff_t keys_a_write = 200;
  std::vector<KeyState> states;
  for (auto first = keys.begin(); first != keys.end();) {
    const auto end = first + std::min(keys_a_write, keys.end() - first);
    auto some = states_of({first, end}, not_a_lock, reader);
    std::move(some.begin(), some.end(), std::back_inserter(states));
    first = end;
  }
  return states;
}

}  // namespace

std::vector<KeyState> inspect_locks(const Query& query, const LockReader& reader) {
  auto states = states_in_portions(query.keys, NotALock::reported, reader);
  if (query.globs.empty()) return states;
  auto found = reader.find(query.globs);
  std::erase_if(found, [&](const LockKey& key) {
    return std::find(query.keys.begin(), query.keys.end(), key) != query.keys.end();
  });
  for (KeyState& state : states_in_portions(found, NotALock::skipped, reader)) {
    if (!state.holders.empty() || !state.waiters.empty()) states.push_back(std::move(state));
  }
  return states;
}

}  // namespace dlock
