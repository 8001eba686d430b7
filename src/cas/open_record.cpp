#include "cas/open_record.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/hash.hpp"
#include "rule/table_text.hpp"

namespace dlock {
namespace {

/// A waiter that nobody can see is taken for dead after this time without a request.
constexpr std::chrono::seconds longest_silence{180};
/// How long a record outlives its last hold, so that fences grow even if the clock steps back.
constexpr std::chrono::hours fence_memory{24 * 7};
/// How long a record without any grant stays, so that late requests find it.
constexpr std::chrono::seconds bare_record_life{60};

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

OpenRecord::OpenRecord(const LockKey& key, const Token& self, const Snapshot& seen,
                       const std::string& where)
    : now{seen.clock, seen.clock}, key_(key), self_(self), seen_(seen) {
  if (!seen.text.empty()) {
    auto named = parse_record(seen.text, where + ": " + escaped(key.text));
    if (named.key != key) {
      throw Error(ErrorKind::wrong_data,
                  where + ": the record of " + escaped(key.text) + " is for another key");
    }
    table = std::move(named.table);
  }
  std::erase_if(table.queue, [&](WaiterEntry& waiter) {
    if (waiter.token == self_) return false;
    if (lives_unseen(waiter)) return waiter.seen < now.lease_clock - longest_silence;
    if (!seen_.alive->contains(connection_in(waiter.backing.mailbox))) return true;
    waiter.seen = table.last_ask = now.lease_clock;
    return false;
  });
  before_ = table;
}

bool OpenRecord::lives_unseen(const WaiterEntry& waiter) const {
  return waiter.backing.mailbox.empty() || !seen_.alive;
}

bool OpenRecord::wake(const WaiterEntry& waiter, const Message& message) {
  const std::string& address = waiter.backing.mailbox;
  if (!address.empty()) {
    wakeups_.push_back({channel_in(address), message_text(waiter.token, message)});
  }
  return true;
}

void OpenRecord::finish(bool more) {
  while (more) more = table.admit_waiters(now, *this).more;
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
    const auto lasts = std::max(hold.at + hold.lease, hold.since + hold.floor);
    update.ends = std::max(update.ends, lasts + fence_memory);
  }
  return update;
}

}  // namespace dlock
