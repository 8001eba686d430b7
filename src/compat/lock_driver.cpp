#include "compat/lock_driver.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "compat/layout.hpp"
#include "compat/redisson_evict_script.hpp"
#include "compat/redisson_release_script.hpp"
#include "compat/redisson_renew_script.hpp"
#include "compat/redisson_take_script.hpp"
#include "compat/string_evict_script.hpp"
#include "compat/string_release_script.hpp"
#include "compat/string_release_telling_script.hpp"
#include "compat/string_renew_script.hpp"
#include "compat/string_take_script.hpp"
#include "compat/symfony_evict_script.hpp"
#include "compat/symfony_release_script.hpp"
#include "compat/symfony_renew_script.hpp"
#include "compat/symfony_take_script.hpp"

namespace dlock {
namespace {

constexpr std::size_t hex_digits_of_a_token = 32;

/// The last part of a token: 32 hex digits; empty if `token` is of another form.
std::string random_part(const Token& token) {
  const std::string digits = token.text.substr(token.text.rfind(':') + 1);
  const bool is_hex = digits.size() == hex_digits_of_a_token &&
                      digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_hex ? digits : "";
}

unsigned digit_value(char digit) {
  return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

}  // namespace

std::string base64url_of(const Token& token) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  constexpr unsigned bits_of_a_letter = 6;
  std::string out;
  unsigned bits = 0;
  unsigned value = 0;
  for (const char digit : random_part(token)) {
    value = value << 4U | digit_value(digit);
    bits += 4;
    if (bits < bits_of_a_letter) continue;
    bits -= bits_of_a_letter;
    out += letters[value >> bits];
    value &= (1U << bits) - 1;
  }
  if (bits > 0) out += letters[value << (bits_of_a_letter - bits)];
  // No value of a lock can be that of a token that is none of ours.
  return out.empty() ? "no hold: " + token.text : out;
}

std::string uuid_of(const Token& token) {
  std::string digits = random_part(token);
  if (digits.empty()) return "no hold: " + token.text;
  for (const std::size_t at : {20U, 16U, 12U, 8U}) digits.insert(at, "-");
  return digits;
}

Holder foreign_holder(std::string library, const Reply& pttl) {
  Holder holder;
  holder.library = std::move(library);
  if (pttl.integer >= 0) holder.lease_left = milliseconds(pttl.integer);
  holder.limit = exclusive;
  return holder;
}

std::unique_ptr<LockDriver> driver_of(Layout layout, bool cluster) {
  switch (layout.kind()) {
    case LayoutKind::redisson:
      return redisson_driver(std::move(layout), cluster);
    case LayoutKind::symfony:
      return symfony_driver(std::move(layout), cluster);
    case LayoutKind::string:
      break;
  }
  return string_driver(std::move(layout), cluster);
}

namespace {

/// A string whose value names the hold: what most libraries do.
class StringDriver final : public LockDriver {
 public:
  using LockDriver::LockDriver;

  void check_name(const LockKey& key) const override;
  HoldMark name_of(const Token& token) const override;
  std::optional<Request> quick_take(const std::string& key, const HoldMark& name,
                                    milliseconds ttl) const override {
    return Request{"SET", key, name.written, "NX", "PX", std::to_string(ttl.count())};
  }
  ScriptRun take(const std::string& key, const HoldMark& name, milliseconds ttl) const override {
    return {string_take,
            string_take_sha1,
            {key},
            {name.written, std::to_string(ttl.count()), name.proof}};
  }
  ScriptRun renew(const std::string& key, const HoldMark& name, milliseconds ttl) const override {
    return {string_renew, string_renew_sha1, {key}, {name.proof, std::to_string(ttl.count())}};
  }
  ScriptRun release(const std::string& key, const HoldMark& name) const override;
  ScriptRun evict(const std::string& key, const std::string& victim) const override;
  std::vector<Request> look(const std::string& key) const override {
    return {{"PTTL", key}, {"GETRANGE", key, "0", "199"}};
  }
  std::optional<Holder> seen_in(const std::string& key,
                                const std::vector<Reply>& replies) const override {
    constexpr std::int64_t no_key = -2;
    if (replies[0].integer == no_key) return std::nullopt;
    return holder_of(key, replies[0], replies[1].text);
  }
  Holder holder_in(const std::string& key, const Reply& answer) const override {
    return holder_of(key, answer.items.at(1), answer.items.at(2).text);
  }
  std::vector<std::string> channels(const std::string& key) const override {
    if (layout().row->signal != ReleaseSignal::channel) return {};
    // Spring Integration up to 6.4.7, and 6.5.0 to 6.5.2, listens to one channel for all keys.
    const std::string of_all_keys = layout().part + "-channel";
    return {of_all_keys + ":" + key, of_all_keys};
  }

 private:
  static Holder holder_of(const std::string& key, const Reply& pttl, const std::string& value);
  /// The list that tells waiters, behind the key.
  std::vector<std::string> keys(const std::string& key) const;
  /// `first`, and the channels that tell waiters.
  std::vector<std::string> with_channels(std::string first, const std::string& key) const;
};

void StringDriver::check_name(const LockKey& key) const {
  const bool two_keys = layout().row->signal == ReleaseSignal::list;
  if (!cluster() || !two_keys) return;
  const auto open = key.text.find('{');
  const auto close = key.text.find('}', open == std::string::npos ? 0 : open);
  if (open != std::string::npos && close != std::string::npos && close > open + 1) return;
  throw_usage(escaped(key.text) + ": in a Cluster the two keys of python-redis-lock share a slot " +
              "only where a part of the name stands in braces");
}

HoldMark StringDriver::name_of(const Token& token) const {
  if (!layout().row->dated) {
    const std::string value = base64url_of(token);
    return {value, value};
  }
  const std::string end = ":" + uuid_of(token);
  return {"ADDED:" + iso8601(wall_now()) + "@" + this_process("", "").host + end, end};
}

std::vector<std::string> StringDriver::keys(const std::string& key) const {
  if (layout().row->signal != ReleaseSignal::list) return {key};
  return {key, "lock-signal:" + key.substr(std::string(layout().row->before).size())};
}

std::vector<std::string> StringDriver::with_channels(std::string first,
                                                     const std::string& key) const {
  std::vector<std::string> arguments = channels(key);
  arguments.insert(arguments.begin(), std::move(first));
  return arguments;
}

ScriptRun StringDriver::release(const std::string& key, const HoldMark& name) const {
  if (layout().row->signal == ReleaseSignal::none) {
    return {string_release, string_release_sha1, {key}, {name.proof}};
  }
  return {string_release_telling, string_release_telling_sha1, keys(key),
          with_channels(name.proof, key)};
}

ScriptRun StringDriver::evict(const std::string& key, const std::string& victim) const {
  return {string_evict, string_evict_sha1, keys(key), with_channels(victim, key)};
}

Holder StringDriver::holder_of(const std::string& key, const Reply& pttl,
                               const std::string& value) {
  const auto seen = recognise_string(key, value);
  Holder holder = foreign_holder(seen ? seen->library : "an unknown library", pttl);
  if (!seen) return holder;
  holder.who.host = seen->host;
  if (seen->since) holder.acquired_at = *seen->since;
  return holder;
}

}  // namespace

std::unique_ptr<LockDriver> string_driver(Layout layout, bool cluster) {
  return std::make_unique<StringDriver>(std::move(layout), cluster);
}

namespace {

/// A sorted set with a member for each holder, which is scored by the end of its lease, and one
/// that says that it is exclusive.
class SymfonyDriver final : public LockDriver {
 public:
  using LockDriver::LockDriver;

  HoldMark name_of(const Token& token) const override {
    const std::string member = base64url_of(token);
    return {member, member};
  }
  ScriptRun take(const std::string& key, const HoldMark& name, milliseconds ttl) const override {
    return {symfony_take, symfony_take_sha1, {key}, {name.written, std::to_string(ttl.count())}};
  }
  ScriptRun renew(const std::string& key, const HoldMark& name, milliseconds ttl) const override {
    return {symfony_renew, symfony_renew_sha1, {key}, {name.proof, std::to_string(ttl.count())}};
  }
  ScriptRun release(const std::string& key, const HoldMark& name) const override {
    return {symfony_release, symfony_release_sha1, {key}, {name.proof}};
  }
  ScriptRun evict(const std::string& key, const std::string& victim) const override {
    return {symfony_evict, symfony_evict_sha1, {key}, {victim}};
  }
  std::vector<Request> look(const std::string& key) const override {
    return {{"PTTL", key}, {"ZRANGE", key, "0", "1"}};
  }
  std::optional<Holder> seen_in(const std::string& key,
                                const std::vector<Reply>& replies) const override {
    if (!replies[1].is_array(1)) return std::nullopt;
    const auto& members = replies[1].items;
    for (const Reply& member : members) {
      if (is_symfony_member(member.text)) continue;
      throw Error(ErrorKind::wrong_data,
                  escaped(key) + " is a sorted set that Symfony did not write, which --compat " +
                      layout().row->name + " does not share");
    }
    return holder_of(replies[0], members[0].text, members.size() > 1 ? members[1].text : "");
  }
  std::size_t parts_of_a_refusal() const override { return 4; }
  Holder holder_in(const std::string&, const Reply& answer) const override {
    return holder_of(answer.items.at(1), answer.items.at(2).text, answer.items.at(3).text);
  }

 private:
  static Holder holder_of(const Reply& pttl, const std::string& first, const std::string& second) {
    Holder holder = foreign_holder("Symfony Lock or dlock", pttl);
    const bool is_exclusive = first == "__write__" || second == "__write__";
    if (!is_exclusive) holder.limit = no_limit;
    return holder;
  }
};

}  // namespace

std::unique_ptr<LockDriver> symfony_driver(Layout layout, bool cluster) {
  return std::make_unique<SymfonyDriver>(std::move(layout), cluster);
}

namespace {

constexpr const char* library = "Redisson or dlock";

/// A hash with one field, the client's id and its thread: RLock and those that share its layout.
class RedissonDriver final : public LockDriver {
 public:
  using LockDriver::LockDriver;

  void check_name(const LockKey& key) const override;
  HoldMark name_of(const Token& token) const override {
    const std::string field = uuid_of(token) + ":1";
    return {field, field};
  }
  ScriptRun take(const std::string& key, const HoldMark& name, milliseconds ttl) const override {
    ScriptRun run{redisson_take,
                  redisson_take_sha1,
                  {key, beside(key, "redisson_lock_queue")},
                  {name.written, std::to_string(ttl.count())}};
    if (layout().row->fenced) run.keys.push_back(beside(key, "redisson_lock_token"));
    return run;
  }
  ScriptRun renew(const std::string& key, const HoldMark& name, milliseconds ttl) const override {
    ScriptRun run{
        redisson_renew, redisson_renew_sha1, {key}, {name.proof, std::to_string(ttl.count())}};
    if (layout().row->fenced) run.keys.push_back(beside(key, "redisson_lock_token"));
    return run;
  }
  ScriptRun release(const std::string& key, const HoldMark& name) const override {
    return {redisson_release,
            redisson_release_sha1,
            {key},
            {name.proof, channel(key), cluster() ? "1" : "0"}};
  }
  ScriptRun keep(const std::string& key, const HoldMark& name, milliseconds rest) const override {
    ScriptRun run = renew(key, name, rest);
    run.arguments.push_back(channel(key));
    run.arguments.push_back(cluster() ? "1" : "0");
    return run;
  }
  ScriptRun evict(const std::string& key, const std::string& victim) const override {
    return {redisson_evict,
            redisson_evict_sha1,
            {key, beside(key, "redisson_lock_queue")},
            {victim, channel(key), cluster() ? "1" : "0"}};
  }
  std::vector<Request> look(const std::string& key) const override {
    return {{"PTTL", key}, {"HLEN", key}, {"HSCAN", key, "0", "COUNT", "2"}};
  }
  std::optional<Holder> seen_in(const std::string& key,
                                const std::vector<Reply>& replies) const override;
  Holder holder_in(const std::string&, const Reply& answer) const override {
    return foreign_holder(library, answer.items.at(1));
  }
  std::vector<std::string> channels(const std::string& key) const override {
    return {channel(key)};
  }

 private:
  static std::string channel(const std::string& key) {
    return beside(key, "redisson_lock__channel");
  }
  /// The name of a key or channel beside the lock's: in the same slot, if the lock's name allows.
  static std::string beside(const std::string& key, const std::string& prefix) {
    const bool has_brace = key.find('{') != std::string::npos;
    return prefix + (has_brace ? ":" + key : ":{" + key + "}");
  }
};

void RedissonDriver::check_name(const LockKey& key) const {
  if (!cluster()) return;
  const auto open = key.text.find('{');
  const auto close = key.text.find('}', open == std::string::npos ? 0 : open);
  const bool has_tag = open != std::string::npos && close != std::string::npos && close > open + 1;
  if (has_tag || (open == std::string::npos && close == std::string::npos)) return;
  throw_usage(
      escaped(key.text) +
      ": in a Cluster the keys of a Redisson lock share a slot only where its name has no " +
      "braces, or a pair with text between them");
}

std::optional<Holder> RedissonDriver::seen_in(const std::string& key,
                                              const std::vector<Reply>& replies) const {
  if (replies[1].integer == 0) return std::nullopt;
  const bool has_pairs = replies[2].is_array(2);
  const auto pairs = has_pairs ? replies[2].items[1].items : std::vector<Reply>{};
  const std::string field = pairs.empty() ? "" : pairs.front().text;
  if (replies[1].integer == 1 && is_redisson_owner(field)) {
    return foreign_holder(library, replies[0]);
  }
  bool has_mode = false;
  for (std::size_t i = 0; i < pairs.size(); i += 2) has_mode |= pairs[i].text == "mode";
  const char* kind = has_mode                  ? "a Redisson read/write lock"
                     : replies[1].integer == 1 ? "a hash that no client of Redisson wrote"
                                               : "a hash with several fields";
  throw Error(ErrorKind::wrong_data, escaped(key) + " is " + kind + ", which --compat " +
                                         layout().row->name + " does not share");
}

}  // namespace

std::unique_ptr<LockDriver> redisson_driver(Layout layout, bool cluster) {
  return std::make_unique<RedissonDriver>(std::move(layout), cluster);
}

}  // namespace dlock
