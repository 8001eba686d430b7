#include "cas/open_record.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "lock/latch.hpp"
#include "rule/table_format.hpp"

namespace dlock {
namespace {

constexpr std::string_view first_words_of_stored = "dlock-record 1 ";

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
    return "grant " + short_name(token.text) + " " + std::to_string(grant->now.count()) + " " +
           std::to_string(grant->lease.count()) + " " + std::to_string(grant->fence.value);
  }
  const auto in = std::get<NextMessage>(message).in;
  return "next " + short_name(token.text) + " " + std::to_string(in.count());
}

constexpr std::string_view first_word_of_latch = "dlock-latch";
constexpr std::string_view version_of_latch = "1";

[[noreturn]] void refuse_latch(const std::string& where) {
  throw Error(ErrorKind::wrong_data,
              where + ": a record holds no latch of this version of dlock; if it is not needed, " +
                  "remove it");
}

}  // namespace

std::string channel_in(const std::string& address) {
  const auto dot = address.rfind(before_id);
  return dot == std::string::npos ? "" : address.substr(0, dot);
}

std::string life_in(const std::string& address) {
  const auto dot = address.rfind(before_id);
  return dot == std::string::npos ? "" : address.substr(dot + 1);
}

std::string short_name(std::string_view text) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), fnv1a(text), 16).ptr;
  return {digits.data(), end};
}

std::string life_name(const Token& token) { return short_name(token.text); }

std::string min_hold_life_name(const Token& token) { return short_name(token.text) + "-min"; }

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
  for (HoldEntry& hold : table.holds) end_by_life(hold);
  drop_dead_waiters();
  before_ = table;
}

/// The id of the life that shows others that an entry's client is alive.
std::string OpenRecord::life_of(const Token& token, const HolderIdentity& backing) const {
  return entries_live() ? life_name(token) : life_in(backing.mailbox);
}

std::string OpenRecord::life_of(const HoldEntry& hold) const {
  const bool by_min_hold = entries_live() && hold.flag == Flag::cooldown;
  return by_min_hold ? min_hold_life_name(hold.token) : life_of(hold.token, hold.backing);
}

std::string OpenRecord::to_watch(const WaiterEntry& waiter) const {
  const std::string life = life_of(waiter.token, waiter.backing);
  return !lives(life) ? "" : entries_live() ? life : waiter.backing.mailbox;
}

std::string OpenRecord::to_watch(const HoldEntry& hold) const {
  const std::string life = life_of(hold);
  return !lives(life) ? "" : entries_live() ? life : hold.backing.mailbox;
}

/// Removes the waiters whose clients have gone. Waiters that the engine knows to be alive count as
/// just seen, because the rule drops a waiter by the time of its last request.
void OpenRecord::drop_dead_waiters() {
  std::erase_if(table.queue, [&](WaiterEntry& waiter) {
    const bool own = waiter.token == self_;
    if (lives_unseen(waiter)) return !own && waiter.seen < now.lease_clock - longest_silence;
    if (!own && !lives(life_of(waiter.token, waiter.backing))) return true;
    waiter.seen = table.last_ask = now.lease_clock;
    return false;
  });
}

/// Sets the times of a hold so that it ends with the life of its entry. The session of a connected
/// holder only extends its hold, so that a clock that jumps ahead does not end it.
void OpenRecord::end_by_life(HoldEntry& hold) const {
  if (has_lives_of(Lives::Of::sessions)) {
    if (hold.flag != Flag::held || !lives(life_of(hold))) return;
    hold.at = std::max(hold.at, now.lease_clock - hold.lease + pause_between_looks);
  }
  if (!entries_live()) return;
  hold.at = now.lease_clock - (lives(life_of(hold)) ? milliseconds(0) : hold.lease);
  if (hold.min_hold <= milliseconds(0) || hold.flag == Flag::provisional) return;
  const auto min_hold_ends = hold.since + hold.min_hold;
  if (lives(min_hold_life_name(hold.token))) {
    hold.since += std::max(microseconds(0), now.lease_clock + milliseconds(1) - min_hold_ends);
  } else {
    hold.since -= std::max(microseconds(0), min_hold_ends - now.lease_clock);
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
  const bool is_bare = hold != nullptr && hold->inside() && hold->min_hold <= milliseconds(0);
  return entries_live() && is_bare && table.queue.empty() && table.holds.size() > crowd;
}

/// Refuses a client that is new to a record which is nearly full. Renewals and hand-overs make the
/// record longer, too, and a holder must not lose its lease because others wait. Waiters have half
/// of the room: a grant to all of them writes a message for each. New holders have three quarters,
/// so that a holder can re-enter while the queue is full.
void OpenRecord::check_room(std::size_t bytes, const CasBackend& backend) const {
  const auto has_own = [&](const auto& entries) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& entry) { return entry.token == self_; });
  };
  const bool is_new = !has_own(before_.holds) && !has_own(before_.queue);
  std::size_t quarters = 4;
  if (is_new && has_own(table.holds)) quarters = 3;
  if (is_new && has_own(table.queue)) quarters = 2;
  const std::size_t room = backend.largest_record() / 4 * quarters;
  if (bytes <= room) return;
  throw_unavailable(backend.name() + ": too many clients hold " + escaped(key_.text) +
                        " or wait for it (" + std::to_string(bytes) + " of " +
                        std::to_string(room) + " bytes): try again later",
                    Cause::other_reply);
}

std::int64_t OpenRecord::lease_of(const Token& token) const {
  if (!entries_live()) return 0;
  const auto life = seen_.lives->ids.find(life_name(token));
  return life == seen_.lives->ids.end() ? 0 : life->second;
}

bool OpenRecord::names(const std::string& id) const {
  const auto is_of = [&](const auto& entry) { return life_in(entry.backing.mailbox) == id; };
  return std::any_of(table.holds.begin(), table.holds.end(), is_of) ||
         std::any_of(table.queue.begin(), table.queue.end(), is_of);
}

bool OpenRecord::lives_unseen(const WaiterEntry& waiter) const {
  return !seen_.lives || (!entries_live() && waiter.backing.mailbox.empty());
}

milliseconds OpenRecord::provisional_lease() const {
  if (entries_live()) return milliseconds::max();
  // Waiters that are granted together confirm one after another, because each rewrites the record.
  constexpr milliseconds turn{100};
  const auto crowd = std::count_if(before_.queue.begin(), before_.queue.end(),
                                   [](const auto& each) { return each.limit != exclusive; });
  return std::max(WaiterNotifier::provisional_lease(), turn * crowd) + seen_.clock_unsure;
}

bool OpenRecord::wake(const WaiterEntry& waiter, const Message& message) {
  const std::string to = entries_live() ? life_name(waiter.token) : waiter.backing.mailbox;
  if (!to.empty()) wakeups_.push_back({to, message_text(waiter.token, message)});
  return true;
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
  for (const HoldEntry& hold : table.holds) {
    const auto lasts = std::max(hold.at + hold.lease, hold.since + hold.min_hold);
    update.ends = std::max(update.ends, lasts + fence_memory);
  }
  if (!entries_live()) return update;
  update.ended = lives_without_entry();
  // The end of a waiter's life wakes the waiter, too, and a life that has ended takes no messages.
  std::erase_if(update.wakeups, [&](const Wakeup& wakeup) {
    return std::find(update.ended.begin(), update.ended.end(), wakeup.to) != update.ended.end();
  });
  return update;
}

/// If there is a message to send, the lives of former holds stay until their leases expire: the
/// waiter that gets the lock also watches the holder's life, and should get the message first.
std::vector<std::string> OpenRecord::lives_without_entry() const {
  std::set<std::string> needed;
  if (!wakeups_.empty()) {
    for (const HoldEntry& hold : before_.holds) {
      needed.insert({life_name(hold.token), min_hold_life_name(hold.token)});
    }
  }
  for (const HoldEntry& hold : table.holds) {
    if (hold.flag != Flag::cooldown) needed.insert(life_name(hold.token));
    if (hold.flag != Flag::tombstone) needed.insert(min_hold_life_name(hold.token));
  }
  for (const WaiterEntry& waiter : table.queue) needed.insert(life_name(waiter.token));
  std::vector<std::string> ended;
  for (const auto& [name, lease] : seen_.lives->ids) {
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

std::string latch_text(const LatchRecord& latch) {
  return std::string(first_word_of_latch) + " " + std::string(version_of_latch) + " " +
         std::to_string(latch.count) + " " + std::to_string(latch.ends.count()) + " " +
         latch.generation + " " + (latch.open ? "open" : "closed") + "\n";
}

std::optional<LatchRecord> latch_in(const Snapshot& seen, const std::string& where) {
  if (seen.text.empty()) return std::nullopt;
  std::string_view text = seen.text;
  if (!text.ends_with('\n')) refuse_latch(where);
  text.remove_suffix(1);
  if (take_until(text, ' ') != first_word_of_latch || take_until(text, ' ') != version_of_latch) {
    refuse_latch(where);
  }
  LatchRecord latch;
  const auto count = parse_number(take_until(text, ' '), 1, largest_latch);
  const auto ends = parse_number(take_until(text, ' '), 0, latest_time.count());
  latch.generation = take_until(text, ' ');
  latch.open = text == "open";
  if (!count || !ends || latch.generation.empty() || (!latch.open && text != "closed")) {
    refuse_latch(where);
  }
  latch.count = *count;
  latch.ends = microseconds(*ends);
  if (latch.ends <= seen.clock) return std::nullopt;
  return latch;
}

std::string value_of(const Update& update) {
  return std::string(first_word_of_value) + std::to_string(update.ends.count()) + "\n" +
         update.text;
}

std::optional<microseconds> take_end(std::string& value) {
  std::string_view rest = value;
  if (!rest.starts_with(first_word_of_value)) return std::nullopt;
  rest.remove_prefix(first_word_of_value.size());
  const auto ends = parse_number(take_until(rest, '\n'), 0, INT64_MAX);
  if (!ends) return std::nullopt;
  value = std::string(rest);
  return microseconds(*ends);
}

std::string stored(const StoredRecord& record) {
  return std::string(first_words_of_stored) + std::to_string(record.version) + " " +
         percent_encoded(record.name) + "\n" + record.text;
}

std::optional<StoredRecord> stored_in(std::string_view value) {
  if (!value.starts_with(first_words_of_stored)) return std::nullopt;
  value.remove_prefix(first_words_of_stored.size());
  const auto version = parse_number(take_until(value, ' '), 1, INT64_MAX);
  if (!version) return std::nullopt;
  std::string name = percent_decoded(take_until(value, '\n'));
  return StoredRecord{*version, std::move(name), std::string(value)};
}

void throw_no_record(const std::string& where) {
  throw Error(ErrorKind::wrong_data,
              where + " holds something else than a record of dlock: delete it to lock this key");
}

Version random_version() {
  constexpr std::size_t bytes = 7;
  return static_cast<Version>(std::stoull(random_hex(bytes), nullptr, 16)) + 1;
}

std::string plain_name(std::string_view name, std::string_view shown) {
  constexpr std::size_t longest = 40, digits = 16;
  std::string slug;
  for (const char each : shown) {
    const auto c = static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!is_plain && (slug.empty() || slug.back() == '-')) continue;
    slug += is_plain ? c : '-';
    if (slug.size() == longest) break;
  }
  if (!slug.empty() && slug.back() != '-') slug += '-';
  const std::string hash = short_name(name);
  return slug + std::string(digits - hash.size(), '0') + hash;
}

}  // namespace dlock
