#include "compat/lock_driver.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "compat/foreign_lock.hpp"
#include "compat/redisson_script.hpp"
#include "compat/string_script.hpp"
#include "compat/symfony_script.hpp"

namespace dlock {
namespace {

/// The 128 random bits of a token as 32 hex digits; empty if the token does not come from
/// `acquire`.
std::string random_part(const Token& token) {
  constexpr std::size_t hex_digits_of_a_token = 32;
  const std::string digits = token.text.substr(token.text.rfind(':') + 1);
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

/// The name of a second key or channel of a Redisson lock, in the same slot if the lock's name
/// allows it.
std::string beside(const std::string& key, const std::string& prefix) {
  const bool has_brace = key.find('{') != std::string::npos;
  return prefix + (has_brace ? ":" + key : ":{" + key + "}");
}

/// Why a hash is no plain lock of Redisson.
const char* fault_of(const Fields& fields) {
  for (const auto& [field, value] : fields) {
    if (field == "mode") return "a Redisson read/write lock";
  }
  return fields.size() == 1 ? "a hash that no client of Redisson wrote"
                            : "a hash with several fields";
}

}  // namespace

void LockDriver::check_name(const LockKey& key) const {
  const bool is_redisson = layout_.kind() == LayoutKind::redisson;
  if (!cluster_ || (!is_redisson && layout_.row->signal != ReleaseSignal::list)) return;
  const auto open = key.text.find('{');
  const auto close = key.text.find('}', open == std::string::npos ? 0 : open);
  const bool has_tag = open != std::string::npos && close != std::string::npos && close > open + 1;
  const bool has_braces = open != std::string::npos || close != std::string::npos;
  if (has_tag || (is_redisson && !has_braces)) return;
  throw_usage(escaped(key.text) + ": in a Cluster the " +
              (is_redisson ? "keys of a Redisson lock share a slot only where its name has no "
                             "braces, or a pair with text between them"
                           : "two keys of python-redis-lock share a slot only where a part of "
                             "the name stands in braces"));
}

HoldMark LockDriver::mark_of(const Token& token) const {
  const std::string digits = random_part(token);
  // This text cannot name a hold.
  if (digits.empty()) return {"no hold: " + token.text, "no hold: " + token.text};
  std::string name = base64url_of(digits);
  if (layout_.kind() == LayoutKind::redisson) name = uuid_of(digits) + ":1";
  if (!layout_.row->dated) return {name, name};
  const std::string end = ":" + uuid_of(digits);
  return {"ADDED:" + iso8601(wall_now()) + "@" + this_process("", "").host + end, end};
}

std::vector<std::string> LockDriver::keys(const std::string& key) const {
  std::vector<std::string> all{key};
  if (layout_.row->signal == ReleaseSignal::list) {
    all.push_back("lock-signal:" + key.substr(std::string(layout_.row->before).size()));
  }
  if (layout_.kind() == LayoutKind::redisson) all.push_back(beside(key, "redisson_lock_queue"));
  if (layout_.row->fenced) all.push_back(beside(key, "redisson_lock_token"));
  return all;
}

std::vector<std::string> LockDriver::channels(const std::string& key) const {
  if (layout_.kind() == LayoutKind::redisson) return {beside(key, "redisson_lock__channel")};
  if (layout_.row->signal != ReleaseSignal::channel) return {};
  // Spring Integration up to 6.4.7, and 6.5.0 to 6.5.2, listens to one channel for all keys.
  const std::string of_all_keys = layout_.part + "-channel";
  return {of_all_keys + ":" + key, of_all_keys};
}

ScriptRun LockDriver::run(const char* operation, const std::string& key, const HoldMark& mark,
                          milliseconds ttl) const {
  ScriptRun run{string_script,
                string_script_sha1,
                keys(key),
                {operation, mark.proof, std::to_string(ttl.count()), mark.written}};
  const auto notified = channels(key);
  run.arguments.insert(run.arguments.end(), notified.begin(), notified.end());
  if (layout_.kind() == LayoutKind::redisson) {
    run.text = redisson_script;
    run.sha1 = redisson_script_sha1;
    if (cluster_) run.arguments.emplace_back("1");
  } else if (layout_.kind() == LayoutKind::symfony) {
    run.text = symfony_script;
    run.sha1 = symfony_script_sha1;
  }
  return run;
}

std::optional<Holder> LockDriver::holder_in(const std::string& where, const KeyLook& look) const {
  constexpr std::int64_t no_key = -2;
  if (look.pttl.integer == no_key) return std::nullopt;
  auto lock = foreign_lock(look);
  if (layout_.kind() == LayoutKind::string) {
    return lock ? std::move(lock->holder) : foreign_holder("an unknown library", look.pttl);
  }
  const bool is_redisson = layout_.kind() == LayoutKind::redisson;
  const Fields fields = fields_of(look.contents);
  if (is_redisson ? fields.empty() : look.contents.items.empty()) return std::nullopt;
  const bool is_ours =
      lock && lock->holder.library == (is_redisson ? redisson_library : symfony_library);
  if (is_ours) return std::move(lock->holder);
  refuse(where, is_redisson ? fault_of(fields) : "a sorted set that Symfony did not write");
}

void LockDriver::refuse(const std::string& where, const std::string& kind) const {
  throw Error(ErrorKind::wrong_data,
              where + " is " + kind + ", which --compat " + layout_.row->name + " does not share");
}

std::string LockDriver::proof_of_victim(const Reply& contents) const {
  if (layout_.kind() == LayoutKind::string) return contents.text;
  const bool is_page = layout_.kind() == LayoutKind::redisson && contents.is_array(2);
  const auto& items = is_page ? contents.items[1].items : contents.items;
  return joined(items, " ", [](const Reply& item) { return item.text; });
}

}  // namespace dlock
