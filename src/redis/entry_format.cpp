#include "redis/entry_format.hpp"

#include <algorithm>
#include <string>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "lock/store.hpp"

namespace dlock {
namespace {

/// A brace inside `{...}` would move the lock's keys to different slots.
constexpr std::string_view braces_and_percent = "{}%";

std::string encoded_key(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = braces_and_percent.find(c) == std::string_view::npos;
    out += plain ? std::string(1, c) : percent_encoded({&c, 1}, braces_and_percent);
  }
  return out;
}

/// The flags that the script knows; src/redis/lock/request.lua explains them.
constexpr std::string_view flags_of_holds = "hpkt";

/// Fences and clocks stay below it, so that sums of them in nanoseconds fit in 64 bits.
constexpr std::int64_t largest_number = (1LL << 53) - 1;

/// Encodes a field of `who`; "-" stands for an empty one. A word that begins with one of these
/// characters begins an addition to `who`.
std::string who_field(std::string_view text) {
  constexpr std::string_view of_additions = "#!=;";
  if (text.empty()) return "-";
  if (of_additions.find(text.front()) != std::string_view::npos)
    return percent_encoded(text.substr(0, 1), of_additions) + percent_encoded(text.substr(1));
  return text == "-" ? "%2D" : percent_encoded(text);
}

std::string from_who_field(std::string_view text) {
  return text == "-" ? "" : percent_decoded(text);
}

[[noreturn]] void not_a_lock() {
  throw Error(ErrorKind::wrong_data, "the key holds data that is not a lock");
}

std::int64_t take_number(std::string_view& text) {
  const auto number = parse_number(take_until(text, ' '), 0, largest_number);
  if (!number) not_a_lock();
  return *number;
}

milliseconds to_ms(std::int64_t us) { return std::chrono::ceil<milliseconds>(microseconds(us)); }

}  // namespace

KeyNames::KeyNames(const std::string& prefix, const LockKey& key)
    : holds(prefix + "{" + encoded_key(key.text) + "}"),
      queue(holds + ":queue"),
      waiters(holds + ":waiters"),
      fence(holds + ":fence"),
      fence_register(holds + ":seal"),
      latch(holds + ":latch"),
      alive(prefix + "alive") {}

std::string redis_keys_text(const std::string& prefix, const LockKey& key) {
  return "; its keys in Redis begin with " + escaped(KeyNames(prefix, key).holds);
}

std::optional<LockKey> key_of(std::string_view prefix, std::string_view name, bool fences) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  for (const std::string_view suffix : {":queue", ":latch", fences ? ":fence" : ""}) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  if (name.size() < 3 || name.front() != '{' || name.back() != '}') return std::nullopt;
  const auto inside = name.substr(1, name.size() - 2);
  if (inside.find_first_of("{}") != std::string_view::npos) return std::nullopt;
  LockKey key{percent_decoded(inside)};
  return key_fault(key.text) ? std::nullopt : std::optional(key);
}

std::string scan_pattern(std::string_view prefix) {
  std::string pattern;
  for (const char c : prefix) {
    if (std::string_view("*?[]\\^").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "{*}*";
}

std::string packed_who(const Who& who) {
  return who_field(who.host) + " " + std::to_string(who.pid) + " " + who_field(who.user) + " " +
         who_field(who.command) + " " + who_field(who.label) +
         (who.via == Via::run ? "" : std::string(" =") + name_of(who.via));
}

Who parse_who(std::string_view text) {
  Who who;
  who.host = from_who_field(take_until(text, ' '));
  who.pid = static_cast<pid_t>(parse_number(take_until(text, ' '), 0, INT32_MAX).value_or(0));
  who.user = from_who_field(take_until(text, ' '));
  who.command = from_who_field(take_until(text, ' '));
  who.label = from_who_field(take_until(text, ' '));
  if (text.starts_with('=')) {
    who.via = take_until(text, ' ').substr(1) == name_of(Via::attach) ? Via::attach : Via::acquire;
  }
  if (text.starts_with('#')) {
    const auto pid = parse_number(take_until(text, ' ').substr(1), 0, INT32_MAX);
    who.command_pid = static_cast<pid_t>(pid.value_or(0));
  }
  return who;
}

std::string packed_claim(const Claim& claim) {
  const std::string ttl = std::to_string(claim.ttl.count());
  return " " + ttl + " " + ttl + " " + std::to_string(claim.limit.owners) + " " + claim.owner.text +
         " " + packed_who(claim.who) + packed_command(claim.who.command_pid);
}

std::string packed_command(pid_t command_pid) {
  return command_pid == 0 ? "" : " #" + std::to_string(command_pid);
}

StoredHold parse_hold(std::string_view value, std::int64_t now) {
  const auto flag = take_until(value, ' ');
  const bool is_known = flag.size() == 1 && flags_of_holds.find(flag) != std::string_view::npos;
  if (!is_known) not_a_lock();
  const milliseconds min_hold(take_number(value));
  const std::int64_t at = std::min(take_number(value), now);
  const std::int64_t since = take_number(value);
  Holder hold;
  hold.fence = Fence{take_number(value)};
  const milliseconds lease(take_number(value));
  hold.ttl = milliseconds(take_number(value));
  hold.renewed_ago = to_ms(now - at);
  hold.limit = Limit{take_number(value)};
  hold.kept = flag == "k";
  hold.owner = hold.kept ? "" : std::string(take_until(value, ' '));
  if (hold.kept) take_until(value, ' ');
  hold.who = parse_who(value);
  if (const auto stop = value.find(" !"); stop != std::string_view::npos) {
    hold.stop_asked_by = parse_who(value.substr(stop + 2));
  }
  hold.acquired_at = WallTime(microseconds(since));
  hold.held = to_ms(std::max<std::int64_t>(now - since, 0));
  const auto end_of_lease = microseconds(at) + lease;
  const auto end_of_min_hold = microseconds(std::min(since, now)) + min_hold;
  auto end = end_of_lease;
  if (flag == "h" && end_of_lease <= microseconds(now) && end_of_min_hold > microseconds(now)) {
    hold.kept = true;
    hold.owner.clear();
    end = end_of_min_hold;
  }
  hold.lease_left = to_ms((end - microseconds(now)).count());
  return {hold, flag != "t" && end > microseconds(now)};
}

std::optional<LastGrant> parse_last_grant(std::string_view value) {
  const auto fence = parse_number(take_until(value, ' '), 0, largest_number);
  const auto at = parse_number(take_until(value, ' '), 0, largest_number);
  if (!fence || !at) return std::nullopt;
  for (int lease_ttl_limit_owner = 0; lease_ttl_limit_owner < 4; ++lease_ttl_limit_owner) {
    take_until(value, ' ');
  }
  LastGrant last{parse_who(value), WallTime(microseconds(*at)), Fence{*fence}, {}};
  // Of several holds with this fence, the last one that ended counts.
  for (auto next = value.find(" ;"); next != std::string_view::npos; next = value.find(" ;")) {
    value.remove_prefix(next + 2);
    if (take_until(value, ' ') != std::to_string(last.fence.value)) continue;
    EndOfHold& end = last.end.emplace();
    end.at = WallTime(microseconds(server_number(take_until(value, ' '))));
    if (value.starts_with('!')) end.evicted_by = parse_who(value.substr(1));
    if (const auto code = parse_number(value.substr(0, value.find(' ')), 0, 255))
      end.exit_code = static_cast<int>(*code);
  }
  return last;
}

Waiter parse_waiter(std::string_view value, std::int64_t ticket, std::int64_t now) {
  Waiter waiter;
  take_number(value);      // seen
  take_number(value);      // known_end
  take_until(value, ' ');  // channel
  take_until(value, ' ');  // proposal
  take_number(value);      // min_hold
  take_number(value);      // lease
  take_number(value);      // ttl
  waiter.limit = Limit{take_number(value)};
  waiter.owner = std::string(take_until(value, ' '));
  waiter.who = parse_who(value);
  waiter.ticket = Ticket{ticket};
  waiter.waiting = to_ms(std::max<std::int64_t>(now - ticket, 0));
  return waiter;
}

std::optional<LatchState> latch_of_entry(std::string_view head) {
  if (!head.starts_with('=')) return std::nullopt;
  const auto count = parse_number(head.substr(1), 1, largest_number);
  return count ? std::optional(LatchState{*count, 0, {}}) : std::nullopt;
}

std::int64_t server_number(std::string_view text) {
  const auto number = parse_number(text, 0, largest_number);
  if (!number) unexpected_answer();
  return *number;
}

milliseconds server_span(std::string_view text) {
  return std::min(milliseconds(server_number(text)), longest_span);
}

void unexpected_answer() {
  throw_unavailable("it answered what no version of dlock's script answers");
}

const Reply& reply_item(const Reply& reply, std::size_t i) {
  if (!reply.is_array(i + 1)) unexpected_answer();
  return reply.items[i];
}

std::string_view reply_text(const Reply& reply, std::size_t i) { return reply_item(reply, i).text; }

/// Scripts answer with integers, or with decimal text if Lua's numbers would round the value.
std::int64_t reply_number(const Reply& reply, std::size_t i) {
  const Reply& one = reply_item(reply, i);
  return server_number(one.kind == Reply::Kind::integer ? std::to_string(one.integer) : one.text);
}

milliseconds reply_ms(const Reply& reply, std::size_t i) {
  return std::min(milliseconds(reply_number(reply, i)), longest_span);
}

std::vector<Holder> holders_from(const Reply& reply, std::size_t first, std::int64_t now) {
  std::vector<Holder> holds;
  for (std::size_t i = first; i < reply.items.size(); ++i) {
    holds.push_back(parse_hold(reply.items[i].text, now).hold);
  }
  return holders_of(std::move(holds));
}

Refusal refusal_from(const Reply& reply) {
  Refusal refusal;
  const auto why = reply_text(reply, 1);
  if (why == "upgrade") refusal.why = Refusal::Reason::upgrade;
  if (why == "gone") refusal.why = Refusal::Reason::gone;
  if (why == "superseded") refusal.why = Refusal::Reason::superseded;
  refusal.ticket = Ticket{reply_number(reply, 2)};
  refusal.ahead = static_cast<std::size_t>(reply_number(reply, 3));
  refusal.waiting = static_cast<std::size_t>(reply_number(reply, 4));
  refusal.ask_again_in = reply_ms(reply, 5);
  refusal.holders = static_cast<std::size_t>(reply_number(reply, 6));
  refusal.held_by = holders_from(reply, 9, reply_number(reply, 7));
  return refusal;
}

}  // namespace dlock
