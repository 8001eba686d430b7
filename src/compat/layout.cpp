#include "compat/layout.hpp"

#include <algorithm>

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

/// The name of a second key or channel of a Redisson lock, in the same slot if the lock's name
/// allows it.
std::string beside(const std::string& key, const std::string& prefix) {
  const bool has_brace = key.find('{') != std::string::npos;
  return prefix + (has_brace ? ":" + key : ":{" + key + "}");
}

/// The 128 random bits of a token as 32 hex digits; empty if new_token() did not make the token.
std::string random_part(const Token& token) {
  constexpr std::size_t hex_digits_of_a_token = 32;
  std::string digits = token.text.substr(token.text.rfind(':') + 1);
  digits.resize(std::min(digits.size(), digits.find('.')));
  const bool is_hex = digits.size() == hex_digits_of_a_token &&
                      digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_hex ? digits : "";
}

/// 22 characters of base64url for 32 hex digits.
std::string base64url_of(std::string digits) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  constexpr std::size_t digits_of_two_letters = 3;
  constexpr unsigned values_of_a_letter = 64;
  digits += '0';
  std::string out;
  for (std::size_t i = 0; i < digits.size(); i += digits_of_two_letters) {
    const auto value = std::stoul(digits.substr(i, digits_of_two_letters), nullptr, 16);
    out += letters[value / values_of_a_letter];
    out += letters[value % values_of_a_letter];
  }
  return out;
}

std::string uuid_of(std::string digits) {
  for (const std::size_t at : {20U, 16U, 12U, 8U}) digits.insert(at, "-");
  return digits;
}

}  // namespace

std::span<const LayoutRow> layouts() { return layout_table; }

std::string Layout::key_of(const LockKey& key) const {
  return row->before + part + row->between + key.text;
}

const char* Layout::type() const {
  if (kind() == LayoutKind::string) return "string";
  return kind() == LayoutKind::redisson ? "hash" : "zset";
}

std::vector<std::string> Layout::keys_of_lock(const std::string& key) const {
  std::vector<std::string> all{key};
  if (row->signal == ReleaseSignal::list) {
    all.push_back("lock-signal:" + key.substr(std::string(row->before).size()));
  }
  if (kind() == LayoutKind::redisson) all.push_back(beside(key, "redisson_lock_queue"));
  if (row->fenced) all.push_back(beside(key, "redisson_lock_token"));
  return all;
}

std::vector<std::string> Layout::release_channels(const std::string& key) const {
  if (kind() == LayoutKind::redisson) return {beside(key, "redisson_lock__channel")};
  if (row->signal != ReleaseSignal::channel) return {};
  // Spring Integration up to 6.4.7, and 6.5.0 to 6.5.2, listens to one channel for all keys.
  const std::string of_all_keys = part + "-channel";
  return {of_all_keys + ":" + key, of_all_keys};
}

HoldMark Layout::mark_of(const Token& token) const {
  const std::string digits = random_part(token);
  // This text cannot name a hold.
  if (digits.empty()) return {"no hold: " + token.text, "no hold: " + token.text};
  std::string name = base64url_of(digits);
  if (kind() == LayoutKind::redisson) name = uuid_of(digits) + ":1";
  if (!row->dated) return {name, name};
  const std::string end = ":" + uuid_of(digits);
  return {"ADDED:" + iso8601(wall_now()) + "@" + this_process("", "").host + end, end};
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

}  // namespace dlock
