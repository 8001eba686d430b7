#include "redis/redis_store.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "lock/store.hpp"
#include "redis/entry_format.hpp"
#include "redis/reply.hpp"

namespace dlock {

// RedisStore reads the state of locks and latches by plain commands, without a script.

namespace {

/// The servers, prefix and deadline of one `inspect`.
struct Inspection {
  const std::string& prefix;
  RedisTransport& servers;
  const CallOptions& call_options;
};

const Reply& checked(const Reply& reply) {
  if (reply.is_error()) throw server_error(reply);
  return reply;
}

std::int64_t server_now(const Reply& time) {
  constexpr std::int64_t us_a_second = 1'000'000;
  constexpr std::int64_t largest_second = 9'000'000'000;  // of the year 2255
  return std::min(reply_number(checked(time), 0), largest_second) * us_a_second +
         reply_number(time, 1);
}

std::vector<Holder> holders_in(const Reply& hash, std::int64_t now) {
  std::vector<Holder> holds;
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

/// Parses the replies about a latch: its first entry, its number of entries and its time to live.
std::optional<LatchState> latch_in(std::span<const Reply, 3> replies) {
  constexpr const char* foreign = "the key holds data that is not a latch";
  if (replies[0].is_error("WRONGTYPE")) throw Error(ErrorKind::wrong_data, foreign);
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

/// Whether foreign data is an error, because the user named its key, or skipped, because a glob
/// matched it.
enum class Foreign { reported, skipped };

void read_what_is_ours(const LockKey& key, Foreign foreign, const Inspection& inspection,
                       const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::wrong_data && foreign == Foreign::skipped) return;
    const bool foreign_data = error.kind() == ErrorKind::wrong_data;
    throw error.reworded(inspection.servers.name() + ": " + escaped(key.text) + ": " +
                         error.what() +
                         (foreign_data ? redis_keys_text(inspection.prefix, key) : ""));
  }
}

/// Appends the states of some keys, in one write.
void add_states(std::span<const LockKey> keys, Foreign foreign, const Inspection& inspection,
                std::vector<KeyState>& states) {
  std::vector<std::string> names_of_holds;
  std::vector<Request> requests;
  for (const LockKey& key : keys) {
    const KeyNames names(inspection.prefix, key);
    names_of_holds.push_back(names.holds);
    requests.push_back({"HGETALL", names.holds});
    requests.push_back({"ZRANGE", names.queue, "0", "-1", "WITHSCORES"});
    requests.push_back({"HGETALL", names.waiters});
    requests.push_back({"TIME"});
    requests.push_back({"GET", names.fence});
    requests.push_back({"ZRANGE", names.latch, "0", "0"});
    requests.push_back({"ZCARD", names.latch});
    requests.push_back({"PTTL", names.latch});
  }
  const std::size_t requests_a_key = requests.size() / keys.size();
  const auto replies = inspection.servers.read(
      names_of_holds, requests, at_most(silence_of_a_dead_server, inspection.call_options));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto own = std::span(replies).subspan(i * requests_a_key, requests_a_key);
    KeyState& state = states.emplace_back(KeyState{keys[i]});
    read_what_is_ours(keys[i], foreign, inspection, [&] {
      const std::int64_t now = server_now(own[3]);
      auto waiters = waiters_in(own[1], own[2], now);
      state.holders = holders_in(own[0], now);
      state.waiters = std::move(waiters);
      const bool known = state.holders.empty() && !own[4].is_error();
      if (known) state.last = parse_last_grant(own[4].text);
    });
    read_what_is_ours(keys[i], foreign, inspection, [&] { state.latch = latch_in(own.last<3>()); });
  }
}

std::vector<KeyState> states_of(std::span<const LockKey> keys, Foreign foreign,
                                const Inspection& inspection) {
  constexpr std::size_t keys_a_write = 200;
  std::vector<KeyState> states;
  for (; !keys.empty(); keys = keys.subspan(std::min(keys_a_write, keys.size()))) {
    add_states(keys.first(std::min(keys_a_write, keys.size())), foreign, inspection, states);
  }
  return states;
}

/// The keys that match a glob, except those that the query also names; sorted.
std::vector<LockKey> find(const Query& query, const Inspection& inspection) {
  std::vector<LockKey> keys;
  inspection.servers.visit_all(inspection.call_options, [&](RedisClient& server) {
    scan(server, {"MATCH", scan_pattern(inspection.prefix)}, inspection.call_options,
         [&](const auto& names) {
           for (const std::string& name : names) {
             const auto key = key_of(inspection.prefix, name, query.free);
             if (key && matches_any(key->text, query.globs)) keys.push_back(*key);
           }
         });
  });
  std::erase_if(keys, [&](const LockKey& key) {
    return std::find(query.keys.begin(), query.keys.end(), key) != query.keys.end();
  });
  // A key has several names, and one that migrates between nodes may be found at both.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

}  // namespace

std::vector<KeyState> RedisStore::inspect(const Query& query, const CallOptions& call_options) {
  const Inspection inspection{options_.prefix, *servers_, call_options};
  auto states = states_of(query.keys, Foreign::reported, inspection);
  if (query.globs.empty()) return states;
  for (KeyState& state : states_of(find(query, inspection), Foreign::skipped, inspection)) {
    if (query.lists(state)) states.push_back(std::move(state));
  }
  return states;
}

std::vector<Holder> RedisStore::look_at_holders(const LockKey& key,
                                                const CallOptions& call_options) {
  const std::string name = KeyNames(options_.prefix, key).holds;
  const auto replies = servers_->read({name}, {{"HGETALL", name}, {"TIME"}}, call_options);
  std::vector<Holder> holders;
  read_what_is_ours(key, Foreign::reported, {options_.prefix, *servers_, call_options},
                    [&] { holders = holders_in(replies.at(0), server_now(replies.at(1))); });
  return holders;
}

}  // namespace dlock
