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
  if (!checked(time).is_array(2)) throw Error(ErrorKind::unavailable, "it answered no time");
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

/// Of its first entry, of how many there are, and of the time to its end.
std::optional<LatchState> latch_in(std::span<const Reply, 3> replies) {
  constexpr const char* foreign = "the key holds data that is not a latch";
  if (is_of_class(replies[0], "WRONGTYPE")) throw Error(ErrorKind::wrong_data, foreign);
  const auto& head = checked(replies[0]).items;
  const std::int64_t left = checked(replies[2]).integer;
  constexpr std::int64_t no_such_key = -2;
  if (head.empty() || left == no_such_key) return std::nullopt;
  auto latch = latch_of_entry(head.front().text);
  if (!latch || left < 0) throw Error(ErrorKind::wrong_data, foreign);
  latch->arrived = checked(replies[1]).integer - 1;
  latch->left = milliseconds(left);
  return latch;
}

/// What becomes of a key that holds something else: named by the user it is an error, met by a glob
/// it is none of ours.
enum class Foreign { reported, skipped };

void read_what_is_ours(const LockKey& key, Foreign foreign, const LockReader& reader,
                       const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.trouble() == ErrorKind::wrong_data && foreign == Foreign::skipped) return;
    const bool foreign_data = error.trouble() == ErrorKind::wrong_data;
    throw error.reworded(reader.name + ": " + escaped(key.text) + ": " + error.what() +
                         (foreign_data ? redis_keys_text(reader.prefix, key) : ""));
  }
}

std::vector<KeyState> states_of(const std::vector<LockKey>& keys, Foreign foreign,
                                const LockReader& reader) {
  std::vector<Request> requests;
  for (const LockKey& key : keys) {
    const KeyNames names(reader.prefix, key);
    requests.push_back({"HGETALL", names.holds});
    requests.push_back({"ZRANGE", names.queue, "0", "-1", "WITHSCORES"});
    requests.push_back({"HGETALL", names.waiters});
    requests.push_back({"TIME"});
    requests.push_back({"GET", names.fence});
    requests.push_back({"ZRANGE", names.latch, "0", "0"});
    requests.push_back({"ZCARD", names.latch});
    requests.push_back({"PTTL", names.latch});
  }
  const auto replies = reader.read(keys, requests);
  std::vector<KeyState> states;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto own = std::span(replies).subspan(i * requests_a_key, requests_a_key);
    KeyState state{keys[i]};
    read_what_is_ours(keys[i], foreign, reader, [&] {
      const std::int64_t now = server_now(own[3]);
      auto waiters = waiters_in(own[1], own[2], now);
      state.holders = holders_in(own[0], now);
      state.waiters = std::move(waiters);
      const bool known = state.holders.empty() && !own[4].is_error();
      if (known) state.last = parse_last_grant(own[4].text);
    });
    read_what_is_ours(keys[i], foreign, reader, [&] { state.latch = latch_in(own.last<3>()); });
    states.push_back(std::move(state));
  }
  return states;
}

/// The same in portions, so that no write and no set of replies grows without bound.
std::vector<KeyState> states_in_portions(const std::vector<LockKey>& keys, Foreign foreign,
                                         const LockReader& reader) {
  constexpr std::ptrdiff_t keys_a_write = 200;
  std::vector<KeyState> states;
  for (auto first = keys.begin(); first != keys.end();) {
    const auto end = first + std::min(keys_a_write, keys.end() - first);
    auto some = states_of({first, end}, foreign, reader);
    std::move(some.begin(), some.end(), std::back_inserter(states));
    first = end;
  }
  return states;
}

}  // namespace

std::vector<KeyState> inspect_locks(const Query& query, const LockReader& reader) {
  auto states = states_in_portions(query.keys, Foreign::reported, reader);
  if (query.globs.empty()) return states;
  auto found = reader.find(query.globs);
  std::erase_if(found, [&](const LockKey& key) {
    return std::find(query.keys.begin(), query.keys.end(), key) != query.keys.end();
  });
  for (KeyState& state : states_in_portions(found, Foreign::skipped, reader)) {
    if (state.in_use()) states.push_back(std::move(state));
  }
  return states;
}

}  // namespace dlock
