#include "compat/compat_store.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/random.hpp"
#include "compat/key_kind.hpp"

namespace dlock {
namespace {

/// Half of the libraries tell nobody of a release, and a lease ends in silence.
constexpr milliseconds longest_sleep_behind_others{1000};
constexpr milliseconds shortest_poll{70};
constexpr milliseconds poll_spread{60};

bool has_verdict(const Reply& answer) {
  return answer.is_array(1) && answer.items[0].kind == Reply::Kind::integer;
}

std::int64_t verdict_of(const RedisClient& client, const Reply& answer, std::size_t at_least) {
  if (!has_verdict(answer)) throw_unavailable(client.server_name() + ": unexpected answer");
  const bool is_short = answer.items[0].integer == 0 && !answer.is_array(at_least);
  if (is_short) throw_unavailable(client.server_name() + ": unexpected answer");
  return answer.items[0].integer;
}

Grant grant_from(const Reply& answer, Deadline sent, milliseconds ttl) {
  const Fence fence{answer.is_array(2) ? answer.items[1].integer : 0};
  return {fence, Lease{ttl, valid_until(sent, ttl)}};
}

}  // namespace

Answer CompatStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  driver_->check_name(claim.key);
  const Key hold{claim.key, claim.token};
  names_.try_emplace(hold, driver_->name_of(claim.token));
  std::optional<Grant> grant;
  Refusal refusal;
  const bool begins_to_wait = ask.wait && !ask.asks_again;
  const auto sent = BootClock::now();
  servers_->at(driver_->key_of(claim.key), call_options,
               [&](RedisClient& client, const CallOptions& share) {
                 const std::string key = driver_->key_of(claim.key);
                 if (begins_to_wait) news_.listen(client, key, driver_->channel(key), share);
                 grant = take(client, claim, !begins_to_wait, share, refusal);
               });
  if (!grant) return refusal;
  granted_[hold] = {sent, claim.ttl, claim.floor};
  news_.close();
  grant->lease.valid_until = std::min(grant->lease.valid_until, valid_until(sent, claim.ttl));
  return *grant;
}

/// With `at_once` by one plain command first, which costs the server least.
std::optional<Grant> CompatStore::take(RedisClient& client, const Claim& claim, bool at_once,
                                       const CallOptions& call_options, Refusal& refusal) {
  const std::string key = driver_->key_of(claim.key);
  const HoldMark& name = names_.at({claim.key, claim.token});
  const Deadline sent = BootClock::now();
  const auto quick = at_once ? driver_->quick_take(key, name, claim.ttl) : std::nullopt;
  if (quick) {
    const Reply reply = client.read({*quick}, call_options).front();
    check_reply(client, claim.key.text, reply, [] { return std::string(); });
    if (reply.kind != Reply::Kind::nil) return grant_from(reply, sent, claim.ttl);
  }
  const Reply answer = run_at(client, claim.key, driver_->take(key, name, claim.ttl), call_options);
  constexpr std::size_t of_a_refusal = 3;
  if (verdict_of(client, answer, of_a_refusal) == 1) return grant_from(answer, sent, claim.ttl);
  refuse_other_kinds(claim.key, answer);
  refusal = refusal_from(key, answer);
  return std::nullopt;
}

Refusal CompatStore::refusal_from(const std::string& key, const Reply& answer) const {
  Refusal refusal;
  refusal.unordered = true;
  refusal.held_by = {driver_->holder_in(key, answer)};
  refusal.holders = 1;
  const auto lease_left = refusal.held_by.front().lease_left;
  refusal.ask_again_in =
      std::min(lease_left ? *lease_left + milliseconds(1) : longest_sleep_behind_others,
               longest_sleep_behind_others);
  if (!news_.works()) {
    refusal.ask_again_in =
        std::min(refusal.ask_again_in, shortest_poll + random_up_to(poll_spread));
  }
  return refusal;
}

Wake CompatStore::sleep(const Claim&, Deadline until, int cancel_fd) {
  return Wake{news_.await(until, cancel_fd), {}};
}

milliseconds CompatStore::ttl_of(const Claim& claim, const RenewalTerms& terms) const {
  if (terms.ttl) return *terms.ttl;
  const auto known = granted_.find({claim.key, claim.token});
  if (known != granted_.end()) return known->second.ttl;
  if (terms.granted) return claim.ttl;
  throw_usage("this layout does not tell the ttl of a hold: renew it with --ttl");
}

Renewed CompatStore::renew(const Claim& claim, const RenewalTerms& terms,
                           const CallOptions& call_options) {
  const auto& key = claim.key;
  driver_->check_name(key);
  const milliseconds ttl = ttl_of(claim, terms);
  const auto name =
      names_.try_emplace({key, claim.token}, driver_->name_of(claim.token)).first->second;
  const Deadline sent = BootClock::now();
  const Reply answer = run(key, driver_->renew(driver_->key_of(key), name, ttl), call_options);
  if (!has_verdict(answer) || answer.items[0].integer != 1) return {};
  return {grant_from(answer, sent, ttl)};
}

ReleaseResult CompatStore::release(const Claim& claim, const ReleaseOptions& how,
                                   const CallOptions& call_options) {
  const auto& key = claim.key;
  driver_->check_name(key);
  const Key hold{key, claim.token};
  const auto known = names_.find(hold);
  if (known != names_.end() && !servers_->was_reached()) return {};
  const HoldMark name = known != names_.end() ? known->second : driver_->name_of(claim.token);
  const auto granted = granted_.find(hold);
  if (granted != granted_.end() && how.mode == ReleaseMode::normal) {
    const milliseconds rest = granted->second.floor - passed_since(granted->second.at);
    if (rest > milliseconds(0)) {
      const bool kept = renew(claim, {.ttl = rest}, call_options).grant.has_value();
      return {kept ? Released::yes : Released::not_held};
    }
  }
  bool may_be_done = false;
  const Reply answer =
      run(key, driver_->release(driver_->key_of(key), name), call_options, &may_be_done);
  if (answer.integer != 1 && !may_be_done) return {};
  granted_.erase(hold);
  return {Released::yes};
}

std::vector<Holder> CompatStore::evict(const LockKey& key, std::optional<Fence>, const Who&,
                                       const CallOptions& call_options) {
  driver_->check_name(key);
  const std::string name = driver_->key_of(key);
  const Reply answer = run(key, driver_->evict(name), call_options);
  refuse_other_kinds(key, answer);
  constexpr std::size_t of_a_holder = 3;
  if (!answer.is_array(of_a_holder)) return {};
  return {driver_->holder_in(name, answer)};
}

std::vector<KeyState> CompatStore::inspect(const Query& query, const CallOptions& call_options) {
  std::vector<KeyState> states;
  for (const LockKey& key : query.keys) {
    KeyState state{key};
    if (auto holder = holder_of(key, call_options)) state.holders.push_back(std::move(*holder));
    states.push_back(std::move(state));
  }
  return states;
}

std::optional<Holder> CompatStore::holder_of(const LockKey& key, const CallOptions& call_options) {
  driver_->check_name(key);
  const std::string name = driver_->key_of(key);
  std::optional<Holder> holder;
  servers_->at(name, call_options, [&](RedisClient& client, const CallOptions& share) {
    const auto replies = client.read(driver_->look(name), share);
    for (const Reply& reply : replies) {
      check_reply(client, key.text, reply, [&] { return what_is(client, name, share); });
    }
    holder = driver_->seen_in(name, replies);
  });
  return holder;
}

Reply CompatStore::run(const LockKey& key, const ScriptRun& script, const CallOptions& call_options,
                       bool* may_be_done) {
  Reply answer;
  bool sent_twice = false;
  const bool broke_off = servers_->at(driver_->key_of(key), call_options,
                                      [&](RedisClient& client, const CallOptions& share) {
                                        answer = run_at(client, key, script, share);
                                        sent_twice = client.sent_twice();
                                      });
  if (may_be_done != nullptr) *may_be_done = broke_off || sent_twice;
  return answer;
}

Reply CompatStore::run_at(RedisClient& client, const LockKey& key, const ScriptRun& script,
                          const CallOptions& call_options) {
  Reply answer = client.run_script(script, call_options);
  check_reply(client, key.text, answer,
              [&] { return what_is(client, driver_->key_of(key), call_options); });
  return answer;
}

void CompatStore::refuse_other_kinds(const LockKey& key, const Reply& answer) const {
  if (!has_verdict(answer) || answer.items[0].integer >= 0) return;
  const std::string kind = answer.is_array(2) ? answer.items[1].text : "another lock";
  throw Error(ErrorKind::wrong_data, name() + ": " + escaped(key.text) + " is " + kind +
                                         ", which --compat " + driver_->layout().row->name +
                                         " does not share");
}

}  // namespace dlock
