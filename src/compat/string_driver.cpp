#include <utility>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "compat/lock_driver.hpp"
#include "compat/recognise.hpp"
#include "compat/string_evict_script.hpp"
#include "compat/string_release_script.hpp"
#include "compat/string_release_telling_script.hpp"
#include "compat/string_renew_script.hpp"
#include "compat/string_take_script.hpp"

namespace dlock {
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

}  // namespace dlock
