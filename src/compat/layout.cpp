#include "compat/layout.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

constexpr LayoutRow plain(const char* name) { return {name, LayoutKind::string}; }
constexpr LayoutRow behind(const char* name, const char* before) {
  return {name, LayoutKind::string, before};
}

constexpr LayoutRow layout_table[] = {
    plain("redis-py"),
    plain("redlock"),
    plain("node-redlock"),
    plain("redlock-universal"),
    plain("redsync"),
    plain("redislock"),
    plain("redlock-py"),
    plain("redlock-rb"),
    plain("aioredlock"),
    plain("rslock"),
    plain("distributedlock"),
    plain("stackexchange"),
    plain("phpredis"),
    behind("pottery", "redlock:"),
    behind("redlocknet", "redlock:"),
    behind("redis-semaphore", "mutex:"),
    {.name = "laravel",
     .kind = LayoutKind::string,
     .part = LayoutPart::required,
     .part_name = "PREFIX"},
    {.name = "shedlock",
     .kind = LayoutKind::string,
     .before = "job-lock:",
     .part = LayoutPart::optional,
     .part_name = "ENV",
     .between = ":",
     .dated = true},
    {.name = "spring",
     .kind = LayoutKind::string,
     .part = LayoutPart::required,
     .part_name = "REGISTRY",
     .between = ":",
     .signal = ReleaseSignal::channel},
    {.name = "python-redis-lock",
     .kind = LayoutKind::string,
     .before = "lock:",
     .signal = ReleaseSignal::list},
    {.name = "redisson", .kind = LayoutKind::redisson},
    {.name = "redisson-fenced", .kind = LayoutKind::redisson, .fenced = true},
    {.name = "symfony", .kind = LayoutKind::symfony},
};

constexpr const char* usual_part = "default";

std::string spelled(const LayoutRow& row) {
  std::string name = row.name;
  if (row.part == LayoutPart::required) return name + ":" + row.part_name;
  if (row.part == LayoutPart::optional) return name + "[:" + row.part_name + "]";
  return name;
}

}  // namespace

std::span<const LayoutRow> layouts() { return layout_table; }

std::string Layout::key_of(const LockKey& key) const {
  return row->before + part + row->between + key.text;
}

bool Layout::may_be_redlock() const {
  return row->kind == LayoutKind::string && row->signal == ReleaseSignal::none;
}

Layout parse_layout(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto found = std::find_if(std::begin(layout_table), std::end(layout_table),
                                  [&](const LayoutRow& row) { return row.name == name; });
  if (found == std::end(layout_table)) {
    throw_usage("no layout is called \"" + escaped(name) +
                "\"; there are: " + joined(layout_table, ", ", spelled));
  }
  Layout layout{found, colon == std::string_view::npos ? "" : std::string(text.substr(colon + 1))};
  const bool has_part = colon != std::string_view::npos;
  if (has_part && found->part == LayoutPart::none) {
    throw_usage(std::string(found->name) + " has no part of its own: write --compat " +
                found->name);
  }
  if (has_part ? layout.part.empty() : found->part == LayoutPart::required) {
    throw_usage("missing part: write --compat " + spelled(*found) + ", as the application has it");
  }
  if (!has_part && found->part == LayoutPart::optional) layout.part = usual_part;
  if (!layout.part.empty()) {
    if (const auto fault = key_fault(layout.part)) throw_usage("the part of the key " + *fault);
  }
  return layout;
}

namespace {

constexpr std::string_view digits = "0123456789";
constexpr std::string_view lower_hex = "0123456789abcdef";
constexpr std::string_view upper_hex = "0123456789ABCDEF";
constexpr std::string_view alphanumeric =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::string_view base64 =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/";
constexpr std::string_view base64url =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

bool is_made_of(std::string_view text, std::string_view letters, std::size_t size) {
  return text.size() == size && text.find_first_not_of(letters) == std::string_view::npos;
}

bool is_uuid(std::string_view text) {
  constexpr std::size_t size = 36;
  if (text.size() != size) return false;
  for (std::size_t i = 0; i < size; ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : lower_hex.find(text[i]) == std::string_view::npos) return false;
  }
  return true;
}

std::uint64_t hex_value(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

/// A UUID of version 1 counts 100 ns since 1582-10-15 (RFC 9562, 5.1).
WallTime time_of_uuid1(std::string_view hex) {
  constexpr std::uint64_t until_1970 = 0x01b21dd213814000;
  const std::uint64_t ticks = hex_value(hex.substr(13, 3)) << 48U |
                              hex_value(hex.substr(8, 4)) << 32U | hex_value(hex.substr(0, 8));
  constexpr std::uint64_t ticks_of_a_microsecond = 10;
  const std::uint64_t since_1970 = ticks < until_1970 ? 0 : ticks - until_1970;
  return WallTime(microseconds(static_cast<std::int64_t>(since_1970 / ticks_of_a_microsecond)));
}

Recognised of_32_hex(std::string_view value) {
  // Version and variant stand there; of random digits one in 64 looks so.
  const bool is_uuid1 =
      value[12] == '1' && std::string_view("89ab").find(value[16]) != std::string_view::npos;
  if (!is_uuid1) return {"node-redlock or redlock-universal", "", std::nullopt};
  const WallTime since = time_of_uuid1(value);
  const bool is_likely = since <= wall_now() + std::chrono::hours(24) &&
                         since > wall_now() - std::chrono::hours(24 * 3650);
  if (!is_likely) return {"node-redlock or redlock-universal", "", std::nullopt};
  return {"redis-py", "", since};
}

/// `2026-01-02T03:04:05.678Z`, as far as it is written so.
std::optional<WallTime> time_from(std::string_view text) {
  constexpr std::size_t whole_seconds = 19;
  if (text.size() < whole_seconds + 1 || text.back() != 'Z') return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t size) {
    int value = -1;
    const std::string_view part = text.substr(at, size);
    std::from_chars(part.data(), part.data() + part.size(), value);
    return value;
  };
  const std::chrono::year_month_day day{std::chrono::year(number(0, 4)),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2)))};
  if (!day.ok() || number(11, 2) < 0 || number(14, 2) < 0 || number(17, 2) < 0) return std::nullopt;
  milliseconds fraction{0};
  if (text[whole_seconds] == '.') fraction = milliseconds(std::max(number(20, 3), 0));
  return WallTime(std::chrono::sys_days(day) + std::chrono::hours(number(11, 2)) +
                  std::chrono::minutes(number(14, 2)) + std::chrono::seconds(number(17, 2)) +
                  fraction);
}

/// `ADDED:2026-01-02T03:04:05.678Z@host:uuid`.
Recognised of_shedlock(std::string_view value) {
  value.remove_prefix(std::string_view("ADDED:").size());
  const auto at = value.find('@');
  Recognised seen{"ShedLock", "", time_from(value.substr(0, at))};
  if (at == std::string_view::npos) return seen;
  value.remove_prefix(at + 1);
  seen.host = std::string(value.substr(0, value.rfind(':')));
  return seen;
}

/// `host_pid_32hex` of DistributedLock; also where a waiting writer says so.
std::optional<Recognised> of_distributed_lock(std::string_view value) {
  constexpr std::string_view waiting = "_WRITERWAITING";
  if (value.ends_with(waiting)) value.remove_suffix(waiting.size());
  const auto id = value.rfind('_');
  if (id == std::string_view::npos || !is_made_of(value.substr(id + 1), lower_hex, 32)) {
    return std::nullopt;
  }
  value = value.substr(0, id);
  const auto pid = value.rfind('_');
  if (pid == std::string_view::npos || value.size() == pid + 1 ||
      value.find_first_not_of(digits, pid + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return Recognised{"DistributedLock", std::string(value.substr(0, pid)), std::nullopt};
}

std::string library_of_uuid(std::string_view key) {
  if (key.starts_with("redlock:")) return "RedLock.net or pottery";
  if (key.starts_with("mutex:")) return "redis-semaphore";
  if (key.find(':') != std::string_view::npos) return "Spring, redlock-rb or aioredlock";
  return "redlock-rb or aioredlock";
}

bool is_binary(std::string_view value) { return !is_utf8(value); }

}  // namespace

std::optional<Recognised> recognise_string(std::string_view key, std::string_view value) {
  if (value.starts_with("ADDED:")) return of_shedlock(value);
  if (is_made_of(value, lower_hex, 32)) return of_32_hex(value);
  if (is_uuid(value)) return Recognised{library_of_uuid(key), "", std::nullopt};
  const bool padded = value.size() == 24 && value.ends_with("==");
  if (padded && is_made_of(value.substr(0, 22), base64, 22)) {
    return Recognised{"redsync", "", std::nullopt};
  }
  // Of other keys 24 letters may be anything.
  if (key.starts_with("lock:") && is_made_of(value, base64, 24)) {
    return Recognised{"python-redis-lock", "", std::nullopt};
  }
  if (is_made_of(value, upper_hex, 40)) return Recognised{"redlock-cpp", "", std::nullopt};
  if (is_made_of(value, alphanumeric, 16)) return Recognised{"Laravel", "", std::nullopt};
  if (is_made_of(value, alphanumeric, 20)) return Recognised{"redis-plus-plus", "", std::nullopt};
  if (is_made_of(value, base64url, 22)) {
    return Recognised{"dlock, redislock or redlock-py", "", std::nullopt};
  }
  if (value.size() == 20 && is_binary(value)) return Recognised{"rslock", "", std::nullopt};
  if (value.size() == 24 && is_binary(value) && key.starts_with("rueidislock:")) {
    return Recognised{"rueidislock", "", std::nullopt};
  }
  return of_distributed_lock(value);
}

bool is_redisson_owner(std::string_view field) {
  const auto colon = field.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  std::string_view thread = field.substr(colon + 1);
  if (thread.starts_with('-')) thread.remove_prefix(1);
  const bool is_number =
      !thread.empty() && thread.find_first_not_of(digits) == std::string_view::npos;
  return is_number && is_uuid(field.substr(0, colon));
}

bool is_symfony_member(std::string_view member) {
  const bool padded = member.size() == 44 && member.ends_with('=');
  return (padded && is_made_of(member.substr(0, 43), base64, 43)) ||
         is_made_of(member, base64url, 22) || member == "__write__";
}

}  // namespace dlock
