#include <fnmatch.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "redis/redis_store.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

constexpr std::size_t requests_a_key = 4;

const Reply& checked(const Reply& reply) {
  if (reply.is_error()) throw server_error(reply);
  return reply;
}

std::int64_t server_now(const Reply& time) {
  if (!checked(time).is_array(2)) throw Error(Trouble::unavailable, "it answered no time");
  constexpr std::int64_t us_a_second = 1'000'000;
  return server_number(time.items[0].text) * us_a_second + server_number(time.items[1].text);
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

bool matches_any(const std::string& text, const std::vector<std::string>& globs) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
    return fnmatch(glob.c_str(), text.c_str(), 0) == 0;
  });
}

}  // namespace

KeyState RedisStore::state_of(const LockKey& key, const std::vector<Reply>& replies) const {
  const std::int64_t now = server_now(replies[3]);
  return KeyState{key, holders_in(replies[0], now), waiters_in(replies[1], replies[2], now)};
}

std::vector<KeyState> RedisStore::states_of(const std::vector<LockKey>& keys, NotALock not_a_lock,
                                            const Patience& patience) {
  constexpr std::size_t keys_a_write = 200;
  std::vector<KeyState> states;
  for (std::size_t first = 0; first < keys.size(); first += keys_a_write) {
    const std::size_t end = std::min(keys.size(), first + keys_a_write);
    std::vector<Request> requests;
    for (std::size_t i = first; i < end; ++i) {
      const KeyNames names(terms_.prefix, keys[i]);
      requests.push_back({"HGETALL", names.holds});
      requests.push_back({"ZRANGE", names.queue, "0", "-1", "WITHSCORES"});
      requests.push_back({"HGETALL", names.waiters});
      requests.push_back({"TIME"});
    }
    auto replies = connection_.exchange(requests, patience);
    for (std::size_t i = first; i < end; ++i) {
      const auto at = replies.begin() + static_cast<std::ptrdiff_t>((i - first) * requests_a_key);
      try {
        states.push_back(state_of(keys[i], {at, at + requests_a_key}));
      } catch (const Error& error) {
        if (error.trouble() == Trouble::wrong_data && not_a_lock == NotALock::skipped) continue;
        throw Error(error.trouble(), name() + ": " + escaped(keys[i].text) + ": " + error.what());
      }
    }
  }
  return states;
}

std::vector<LockKey> RedisStore::matching_keys(const std::vector<std::string>& globs,
                                               const Patience& patience) {
  std::vector<LockKey> keys;
  std::string cursor = "0";
  do {
    const Request scan{"SCAN", cursor, "MATCH", scan_pattern(terms_.prefix), "COUNT", "1000"};
    const auto replies = connection_.exchange(std::span(&scan, 1), patience);
    const Reply& page = replies.front();
    if (page.is_error()) {
      const Error error = server_error(page);
      throw Error(error.trouble(), name() + ": " + error.what());
    }
    if (!page.is_array(2)) throw Error(Trouble::unavailable, name() + ": no answer to SCAN");
    cursor = page.items[0].text;
    for (const Reply& name : page.items[1].items) {
      const auto key = key_of(terms_.prefix, name.text);
      if (key && matches_any(key->text, globs)) keys.push_back(*key);
    }
  } while (cursor != "0");
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

void RedisStore::stop_listening(const Patience& patience) {
  if (!connection_.is_open()) subscribed_.clear();
  if (subscribed_.empty()) return;
  const Request unsubscribe{"UNSUBSCRIBE", subscribed_};
  connection_.exchange(std::span(&unsubscribe, 1), patience);
  subscribed_.clear();
}

std::vector<KeyState> RedisStore::inspect(const Query& query, const Patience& patience) {
  stop_listening(patience);
  auto states = states_of(query.keys, NotALock::reported, patience);
  if (query.globs.empty()) return states;
  auto found = matching_keys(query.globs, patience);
  std::erase_if(found, [&](const LockKey& key) {
    return std::find(query.keys.begin(), query.keys.end(), key) != query.keys.end();
  });
  for (KeyState& state : states_of(found, NotALock::skipped, patience)) {
    if (!state.holders.empty() || !state.waiters.empty()) states.push_back(std::move(state));
  }
  return states;
}

}  // namespace dlock
