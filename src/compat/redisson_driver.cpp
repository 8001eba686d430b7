#include <utility>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "compat/lock_driver.hpp"
#include "compat/recognise.hpp"
#include "compat/redisson_evict_script.hpp"
#include "compat/redisson_release_script.hpp"
#include "compat/redisson_renew_script.hpp"
#include "compat/redisson_take_script.hpp"

namespace dlock {
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
