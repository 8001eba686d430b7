#include "redis/lock_states.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "lock/store.hpp"
#include "redis/protocol_text.hpp"
#include "redis/reply.hpp"

namespace dlock {

std::vector<std::string> Scan::next() {
  if (left_until(call_options_.deadline) == milliseconds(0)) {
    throw_unavailable(server_.name() + ": SCAN did not come to its end in time");
  }
  Request scan{"SCAN", cursor_, "COUNT", "1000"};
  scan.insert(scan.end(), narrowed_.begin(), narrowed_.end());
  const CallOptions one_page = at_most(silence_of_a_dead_server, call_options_);
  Reply page = server_.read_here({scan}, one_page).front();
  if (page.is_error()) throw server_error(page, server_.name());
  const bool is_page = page.is_array(2) && page.items[0].kind == Reply::Kind::text &&
                       page.items[1].kind == Reply::Kind::array;
  std::string next = is_page ? std::move(page.items[0].text) : "";
  if (next.empty() || next.find_first_not_of("0123456789") != std::string::npos) {
    throw_unavailable(server_.name() + ": no answer to SCAN");
  }
  has_ended_ = next == "0";
  if (next == cursor_ && !has_ended_) {
    throw_unavailable(server_.name() + ": SCAN does not come to its end");
  }
  cursor_ = std::move(next);
  std::vector<std::string> names;
  for (Reply& name : page.items[1].items) names.push_back(std::move(name.text));
  return names;
}

namespace {

/// The servers, prefix and deadline of one `inspect`.
struct Place {
  const std::string& prefix;
  RedisTransport& servers;
  const CallOptions& call_options;
};

constexpr std::size_t requests_a_key = 8;

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

/// Parses the replies about a latch: its first entry, its number of entries and its time to live.
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

/// Whether foreign data is an error, because the user named its key, or skipped, because a glob
/// matched it.
enum class Foreign { reported, skipped };

void read_what_is_ours(const LockKey& key, Foreign foreign, const Place& place,
                       const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::wrong_data && foreign == Foreign::skipped) return;
    const bool foreign_data = error.kind() == ErrorKind::wrong_data;
    throw error.reworded(place.servers.name() + ": " + escaped(key.text) + ": " + error.what() +
                         (foreign_data ? redis_keys_text(place.prefix, key) : ""));
  }
}

std::vector<KeyState> states_of(const std::vector<LockKey>& keys, Foreign foreign,
                                const Place& place) {
  std::vector<std::string> names_of_holds;
  std::vector<Request> requests;
  for (const LockKey& key : keys) {
    const KeyNames names(place.prefix, key);
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
  const CallOptions one_read = at_most(silence_of_a_dead_server, place.call_options);
  const auto replies = place.servers.read(names_of_holds, requests, one_read);
  std::vector<KeyState> states;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto own = std::span(replies).subspan(i * requests_a_key, requests_a_key);
    KeyState state{keys[i]};
    read_what_is_ours(keys[i], foreign, place, [&] {
      const std::int64_t now = server_now(own[3]);
      auto waiters = waiters_in(own[1], own[2], now);
      state.holders = holders_in(own[0], now);
      state.waiters = std::move(waiters);
      const bool known = state.holders.empty() && !own[4].is_error();
      if (known) state.last = parse_last_grant(own[4].text);
    });
    read_what_is_ours(keys[i], foreign, place, [&] { state.latch = latch_in(own.last<3>()); });
    states.push_back(std::move(state));
  }
  return states;
}

/// Reads the states in portions, so that no write and no set of replies grows without bound.
std::vector<KeyState> states_in_portions(const std::vector<LockKey>& keys, Foreign foreign,
                                         const Place& place) {
  constexpr std::ptrdiff_t keys_a_write = 200;
  std::vector<KeyState> states;
  for (auto first = keys.begin(); first != keys.end();) {
    const auto end = first + std::min(keys_a_write, keys.end() - first);
    auto some = states_of({first, end}, foreign, place);
    std::move(some.begin(), some.end(), std::back_inserter(states));
    first = end;
  }
  return states;
}

/// Adds the keys of one server that match.
void find_at(RedisClient& server, const Query& query, const std::string& prefix,
             const CallOptions& call_options, std::vector<LockKey>& keys) {
  Scan scan(server, {"MATCH", scan_pattern(prefix)}, call_options);
  while (!scan.has_ended()) {
    for (const std::string& name : scan.next()) {
      const auto key = key_of(prefix, name);
      if (key && matches_any(key->text, query.globs)) keys.push_back(*key);
    }
  }
}

/// The keys that match a glob and are not named as well, sorted.
std::vector<LockKey> find_once(const Query& query, const Place& place) {
  std::vector<LockKey> keys;
  place.servers.visit_all(place.call_options, [&](RedisClient& server) {
    find_at(server, query, place.prefix, place.call_options, keys);
  });
  std::erase_if(keys, [&](const LockKey& key) {
    return std::find(query.keys.begin(), query.keys.end(), key) != query.keys.end();
  });
  // A key has several names, and one that migrates between nodes may be found at both.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

/// Calls find_once(), again for the whole Cluster if a node is lost meanwhile: another node will
/// take over its slots.
std::vector<LockKey> find(const Query& query, const Place& place) {
  Backoff pauses = pauses_of_redis();
  std::optional<Deadline> heal_by;
  while (true) {
    try {
      return find_once(query, place);
    } catch (const Error& error) {
      // The call's deadline of a minute is meant for many keys: a node without a successor is given
      // up sooner.
      if (!heal_by) heal_by = at_most(silence_of_a_dead_server, place.call_options).deadline;
      const bool may_heal = error.kind() == ErrorKind::unavailable && place.servers.is_cluster() &&
                            place.servers.was_reached();
      if (!may_heal || !pauses.fits(*heal_by)) throw;
    }
    pause(pauses.next(), place.call_options);
  }
}

}  // namespace

std::vector<KeyState> inspect_locks(const Query& query, const std::string& prefix,
                                    RedisTransport& servers, const CallOptions& call_options) {
  const Place place{prefix, servers, call_options};
  auto states = states_in_portions(query.keys, Foreign::reported, place);
  if (query.globs.empty()) return states;
  for (KeyState& state : states_in_portions(find(query, place), Foreign::skipped, place)) {
    if (state.in_use()) states.push_back(std::move(state));
  }
  return states;
}

std::vector<Holder> look_at_holders(const LockKey& key, const std::string& prefix,
                                    RedisTransport& servers, const CallOptions& call_options) {
  const std::string name = KeyNames(prefix, key).holds;
  const auto replies = servers.read({name}, {{"HGETALL", name}, {"TIME"}}, call_options);
  std::vector<Holder> holders;
  read_what_is_ours(key, Foreign::reported, {prefix, servers, call_options},
                    [&] { holders = holders_in(replies.at(0), server_now(replies.at(1))); });
  return holders;
}

}  // namespace dlock
