#include "cas/open_record.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "rule/table_text.hpp"

namespace dlock {
namespace {

/// A waiter whose connection others cannot see counts as dead after this time without a request.
constexpr std::chrono::seconds longest_silence{180};
/// A record outlives its last hold by this time, so that fences grow even if the clock steps back.
constexpr std::chrono::hours fence_memory{24 * 7};
/// A record without any grant stays this long, so that late requests find it.
constexpr std::chrono::seconds bare_record_life{60};

/// After a lease has expired, waiters check this often whether the holder is still connected.
constexpr milliseconds pause_between_looks{1000};

constexpr char before_id = '.';

std::string message_text(const Token& token, const Message& message) {
  if (const auto* grant = std::get_if<GrantMessage>(&message)) {
    return "grant " + message_tag(token) + " " + std::to_string(grant->now.count()) + " " +
           std::to_string(grant->lease.count()) + " " + std::to_string(grant->fence.value);
  }
  const auto in = std::get<NextMessage>(message).in;
  return "next " + message_tag(token) + " " + std::to_string(in.count());
}

}  // namespace

std::string wake_address(const std::string& channel, const std::string& id) {
  return id.empty() ? "" : channel + before_id + id;
}

std::string channel_in(const std::string& address) {
  return address.substr(0, address.rfind(before_id));
}

std::string connection_in(const std::string& address) {
  const auto dot = address.rfind(before_id);
  return dot == std::string::npos ? "" : address.substr(dot + 1);
}

std::string message_tag(const Token& token) {
  std::array<char, 16> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), fnv1a(token.text), 16).ptr;
  return {digits.data(), end};
}

std::string life_name(const Token& token) { return message_tag(token); }

std::string min_hold_life_name(const Token& token) { return message_tag(token) + "-min"; }

OpenRecord::OpenRecord(const LockKey& key, const Token& self, const Snapshot& seen,
                       const std::string& where)
    : now{seen.clock, seen.clock,
          seen.revision != 0 ? std::optional(Fence{seen.revision}) : std::nullopt},
      key_(key),
      self_(self),
      seen_(seen) {
  if (!seen.text.empty()) {
    auto named = parse_record(seen.text, where + ": " + escaped(key.text));
    if (named.key != key) {
      throw Error(ErrorKind::wrong_data,
                  where + ": the record of " + escaped(key.text) + " is for another key");
    }
    table = std::move(named.table);
  }
  if (seen.lives) {
    take_lives();
  } else {
    drop_dead_waiters();
    extend_by_connections();
  }
  before_ = table;
}

void OpenRecord::drop_dead_waiters() {
  std::erase_if(table.queue, [&](WaiterEntry& waiter) {
    if (waiter.token == self_) return false;
    if (lives_unseen(waiter)) return waiter.seen < now.lease_clock - longest_silence;
    if (!seen_.alive->contains(connection_in(waiter.backing.mailbox))) return true;
    waiter.seen = table.last_ask = now.lease_clock;
    return false;
  });
}

/// Keeps the holds of connected holders, so that a clock that jumps ahead ends none of them.
void OpenRecord::extend_by_connections() {
  for (HoldEntry& hold : table.holds) {
    const bool connected = seen_.holding.contains(connection_in(hold.backing.mailbox));
    if (hold.flag != Flag::held || !connected) continue;
    hold.at = std::max(hold.at, now.lease_clock - hold.lease + pause_between_looks);
  }
}

/// The lives say which entries are valid. This sets the times in the table so that the rule, which
/// decides by times, comes to the same result.
void OpenRecord::take_lives() {
  for (HoldEntry& hold : table.holds) end_by_life(hold);
  std::erase_if(table.queue, [&](WaiterEntry& waiter) {
    if (waiter.token != self_ && !has_life(life_name(waiter.token))) return true;
    waiter.seen = table.last_ask = now.lease_clock;
    return false;
  });
}

void OpenRecord::end_by_life(HoldEntry& hold) const {
  const bool kept = hold.flag == Flag::kept;
  const bool floor_lasts = has_life(min_hold_life_name(hold.token));
  const bool lives = kept ? floor_lasts : has_life(life_name(hold.token));
  hold.at = now.lease_clock - (lives ? milliseconds(0) : hold.lease);
  if (hold.floor <= milliseconds(0) || hold.flag == Flag::provisional) return;
  const auto floor_ends = hold.since + hold.floor;
  if (floor_lasts) {
    hold.since += std::max(microseconds(0), now.lease_clock + milliseconds(1) - floor_ends);
  } else {
    hold.since -= std::max(microseconds(0), floor_ends - now.lease_clock);
  }
}

bool OpenRecord::held_before(const Token& token) const {
  return std::any_of(before_.holds.begin(), before_.holds.end(), [&](const HoldEntry& hold) {
    return hold.token == token && hold.flag == Flag::held;
  });
}

bool OpenRecord::ends_by_life(const Token& token) {
  constexpr std::size_t crowd = 8;
  const HoldEntry* hold = table.find_hold(token);
  const bool is_bare = hold != nullptr && hold->inside() && hold->floor <= milliseconds(0);
  return seen_.lives && is_bare && table.queue.empty() && table.holds.size() > crowd;
}

OpenRecord::Added OpenRecord::added() const {
  const auto has_own = [&](const auto& entries) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& entry) { return entry.token == self_; });
  };
  if (has_own(before_.holds) || has_own(before_.queue)) return Added::nothing;
  if (has_own(table.queue)) return Added::waiter;
  return has_own(table.holds) ? Added::hold : Added::nothing;
}

std::int64_t OpenRecord::lease_of(const Token& token) const {
  if (!seen_.lives) return 0;
  const auto life = seen_.lives->find(life_name(token));
  return life == seen_.lives->end() ? 0 : life->second;
}

bool OpenRecord::lives_unseen(const WaiterEntry& waiter) const {
  return !seen_.lives && (waiter.backing.mailbox.empty() || !seen_.alive);
}

milliseconds OpenRecord::provisional_lease() const {
  if (seen_.lives) return milliseconds::max();
  // Waiters that are granted together confirm one after another, because each rewrites the record.
  constexpr milliseconds turn{100};
  const auto crowd = std::count_if(before_.queue.begin(), before_.queue.end(),
                                   [](const auto& each) { return each.limit != exclusive; });
  return std::max(WaiterNotifier::provisional_lease(), turn * crowd);
}

bool OpenRecord::wake(const WaiterEntry& waiter, const Message& message) {
  if (seen_.lives) {
    wakeups_.push_back({life_name(waiter.token), message_text(waiter.token, message)});
    return true;
  }
  const std::string& address = waiter.backing.mailbox;
  if (!address.empty()) {
    wakeups_.push_back(
        {channel_in(address), message_text(waiter.token, message), connection_in(address)});
  }
  return true;
}

void OpenRecord::finish(bool more) {
  while (more) more = table.admit_waiters(now, *this);
}

bool OpenRecord::changed() const {
  if (!wakeups_.empty()) return true;
  LockTable after = table;
  for (std::size_t i = 0; i < std::min(after.queue.size(), before_.queue.size()); ++i) {
    WaiterEntry& waiter = after.queue[i];
    if (waiter.token == self_ && lives_unseen(waiter)) continue;
    waiter.seen = before_.queue[i].seen;
  }
  after.last_ask = before_.last_ask;
  return !(after == before_);
}

Update OpenRecord::update() const {
  Update update{record_text(key_, table), now.lease_clock + bare_record_life, wakeups_};
  if (table.last_fence.value != 0) update.ends = now.lease_clock + fence_memory;
  // With a `latest` in the record, an older waiter could come back and must find the newer one.
  const bool is_vacant = table.holds.empty() && table.queue.empty() && !table.latest;
  if (is_vacant) update.vacant_after = table.last_fence;
  for (const HoldEntry& hold : table.holds) {
    const auto lasts = std::max(hold.at + hold.lease, hold.since + hold.floor);
    update.ends = std::max(update.ends, lasts + fence_memory);
  }
  if (!seen_.lives) return update;
  update.ended_lives = lives_without_entry();
  if (!update.wakeups.empty()) keep_lives_of_holds(update.ended_lives);
  // The end of its life wakes a waiter, too, and a life that has ended takes no messages.
  std::erase_if(update.wakeups, [&](const Wakeup& wakeup) {
    const auto& ended = update.ended_lives;
    return std::find(ended.begin(), ended.end(), wakeup.channel) != ended.end();
  });
  return update;
}

/// Leaves the lives of holds to expire with their leases: a waiter that is handed the lock also
/// watches the holder's life, and should get the message first.
void OpenRecord::keep_lives_of_holds(std::vector<std::string>& ended) const {
  std::erase_if(ended, [&](const std::string& life) {
    return std::any_of(before_.holds.begin(), before_.holds.end(), [&](const HoldEntry& hold) {
      return life == life_name(hold.token) || life == min_hold_life_name(hold.token);
    });
  });
}

std::vector<std::string> OpenRecord::lives_without_entry() const {
  std::set<std::string> needed;
  for (const HoldEntry& hold : table.holds) {
    if (hold.flag != Flag::kept) needed.insert(life_name(hold.token));
    if (hold.flag != Flag::tombstone) needed.insert(min_hold_life_name(hold.token));
  }
  for (const WaiterEntry& waiter : table.queue) needed.insert(life_name(waiter.token));
  std::vector<std::string> ended;
  for (const auto& [name, lease] : *seen_.lives) {
    if (!needed.contains(name)) ended.push_back(name);
  }
  return ended;
}

Crowd crowd_in(std::string_view text) {
  constexpr std::size_t flag = 3, limit = 8;
  Crowd crowd;
  while (!text.empty()) {
    const auto line = take_until(text, '\n');
    const bool waits = line.starts_with("wait ");
    if (!waits && !line.starts_with("hold ")) continue;
    std::string_view field, rest = line;
    for (std::size_t i = 0; i <= (waits ? limit : flag); ++i) field = take_until(rest, ' ');
    ++(waits ? crowd.waiters : crowd.holders);
    if (waits && field != "1") ++crowd.sharers;
    if (!waits && field == "p") ++crowd.unconfirmed;
  }
  return crowd;
}

}  // namespace dlock
