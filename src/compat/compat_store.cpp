#include "compat/compat_store.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "compat/key_kind.hpp"
#include "redis/reply.hpp"
#include "redis/slot_map.hpp"

namespace dlock {
namespace {

constexpr const char* invalidations = "__redis__:invalidate";
constexpr milliseconds longest_set_up{1000};
constexpr milliseconds between_set_ups{1000};

}  // namespace

bool ReleaseNews::is_set_up_for(const LinkId& link,
                                const std::vector<std::string>& channels) const {
  const bool same = link_ == link && channels_ == channels;
  const bool is_broken = listener_ && !listener_->is_open();
  return same && (!is_broken || BootClock::now() < again_at_);
}

bool ReleaseNews::listen(const LinkId& link, const std::string& key,
                         const std::vector<std::string>& channels,
                         const CallOptions& call_options) {
  key_ = key;
  if (is_set_up_for(link, channels)) return false;
  close();
  channels_ = channels;
  RedisClient& client = *link.client;
  try {
    const auto until = std::min(call_options.deadline, later(BootClock::now(), longest_set_up));
    open(client, {until, call_options.cancel_fd});
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    tracks_ = hears_ = false;
  }
  link_ = {&client, client.links()};
  again_at_ = later(BootClock::now(), between_set_ups);
  return works();
}

void ReleaseNews::open(RedisClient& client, const CallOptions& call_options) {
  listener_.emplace(std::make_unique<FixedEndpoint>(client.connect(call_options)));
  std::vector<Request> requests{{"CLIENT", "ID"}, {"SUBSCRIBE", invalidations}};
  for (const std::string& channel : channels_) requests.push_back({"SUBSCRIBE", channel});
  const auto replies = listener_->exchange(requests, call_options);
  // A release may be announced on only one of the channels, so all of them must work.
  hears_ = !channels_.empty() && std::none_of(replies.begin() + 2, replies.end(),
                                              [](const Reply& reply) { return reply.is_error(); });
  if (!replies[0].is_error() && !replies[1].is_error()) {
    track(client, replies[0].integer, call_options);
  }
  if (!works()) listener_.reset();
}

void ReleaseNews::track(RedisClient& client, std::int64_t listener,
                        const CallOptions& call_options) {
  const auto replies = client.read_here(
      {{"CLIENT", "TRACKING", "ON", "REDIRECT", std::to_string(listener)}}, call_options);
  tracks_ = !replies.front().is_error();
}

bool ReleaseNews::concerns_us(const Published& message) const {
  // The server names no key if it has dropped all tracked keys.
  const bool dropped_all = message.channel == invalidations && message.payload.empty();
  const bool is_of_key = !channels_.empty() && message.channel == channels_.front();
  return dropped_all || is_of_key || message.payload == key_;
}

Wake::Reason ReleaseNews::await(Deadline until, int cancel_fd) {
  try {
    while (listener_ && listener_->is_open()) {
      const auto message = listener_->next_message({until, cancel_fd});
      if (!message) return Wake::Reason::due;
      if (concerns_us(*message)) {
        const Wake::Reason reason = paced(until, cancel_fd);
        // A release may be announced on each channel and by the server: drain the rest of it.
        while (listener_->next_message({BootClock::now(), -1})) {
        }
        return reason;
      }
      if (BootClock::now() >= until) return Wake::Reason::due;
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) return Wake::Reason::interrupted;
    tracks_ = hears_ = false;
    // If listeners are closed as fast as they are opened, retry no faster than a poll.
    until = std::min(until, later(BootClock::now(), milliseconds(100)));
  }
  return sleep_until(until, cancel_fd) ? Wake::Reason::interrupted : Wake::Reason::due;
}

/// Limits the rate of wake-ups, because each renewal of the holder causes one. With a short lease
/// the waiter asks at most twice a second in the long run, but at once after a quiet time.
Wake::Reason ReleaseNews::paced(Deadline until, int cancel_fd) {
  constexpr milliseconds each{500};
  constexpr milliseconds ahead{4000};
  const auto now = BootClock::now();
  pace_ = std::max(pace_, now) + each;
  if (pace_ <= now + ahead) return Wake::Reason::due;
  const bool is_cancelled = sleep_until(std::min(until, pace_ - ahead), cancel_fd);
  return is_cancelled ? Wake::Reason::interrupted : Wake::Reason::due;
}

void ReleaseNews::close() {
  listener_.reset();
  link_ = {};
  tracks_ = hears_ = false;
}

namespace {

/// Half of the libraries announce no release, and nothing announces the end of a lease.
constexpr milliseconds longest_sleep_behind_others{1000};
constexpr milliseconds shortest_poll{70};
constexpr milliseconds poll_spread{60};

bool has_verdict(const Reply& answer) {
  return answer.is_array(1) && answer.items[0].kind == Reply::Kind::integer;
}

std::int64_t verdict_of(const std::string& server, const Reply& answer, std::size_t at_least) {
  if (!has_verdict(answer)) throw_unavailable(server + ": unexpected answer");
  const std::int64_t verdict = answer.items[0].integer;
  const bool is_short = verdict == 0 && !answer.is_array(at_least);
  if (verdict > 1 || is_short) throw_unavailable(server + ": unexpected answer");
  return verdict;
}

Grant grant_from(const Reply& answer, Deadline sent, milliseconds ttl) {
  const Fence fence{answer.is_array(2) ? answer.items[1].integer : 0};
  return {fence, Lease{ttl, valid_until(sent, ttl)}};
}

}  // namespace

Answer CompatStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  driver_->check_name(claim.key);
  const Key hold{claim.key, claim.token};
  // Made anew for each request: a dated value says when the lock was taken, not when the wait
  // began.
  names_.insert_or_assign(hold, driver_->name_of(claim.token));
  const bool begins_to_wait = ask.wait && !ask.asks_again;
  const auto sent = BootClock::now();
  auto grant = begins_to_wait ? std::nullopt : take_if_free(claim, call_options);
  if (!grant) {
    Try last = take(claim, call_options);
    const bool is_held = std::holds_alternative<Refusal>(last.answer);
    const std::string key = driver_->key_of(claim.key);
    // A release between the read and the start of listening would wake no waiter, so ask again.
    if (is_held && begins_to_wait &&
        news_.listen(last.link, key, driver_->channels(key), call_options)) {
      last = take(claim, call_options);
    }
    if (auto* refusal = std::get_if<Refusal>(&last.answer)) {
      if (!news_.works()) {
        refusal->ask_again_in =
            std::min(refusal->ask_again_in, shortest_poll + random_up_to(poll_spread));
      }
      return *refusal;
    }
    grant = std::get<Grant>(last.answer);
  }
  granted_[hold] = {sent, claim.ttl, claim.floor};
  news_.close();
  grant->lease.valid_until = std::min(grant->lease.valid_until, valid_until(sent, claim.ttl));
  return *grant;
}

std::optional<Grant> CompatStore::take_if_free(const Claim& claim,
                                               const CallOptions& call_options) {
  const std::string key = driver_->key_of(claim.key);
  const auto quick = driver_->quick_take(key, names_.at({claim.key, claim.token}), claim.ttl);
  if (!quick) return std::nullopt;
  const Deadline sent = BootClock::now();
  const Reply reply = servers_->read({key}, {*quick}, call_options).front();
  check(claim.key, name(), reply, call_options);
  if (reply.kind == Reply::Kind::nil) return std::nullopt;
  const bool is_done = reply.kind == Reply::Kind::text && reply.text == "OK";
  if (!is_done) throw_unavailable(name() + ": unexpected answer");
  return grant_from(reply, sent, claim.ttl);
}

CompatStore::Try CompatStore::take(const Claim& claim, const CallOptions& call_options) {
  const std::string key = driver_->key_of(claim.key);
  const auto script = driver_->take(key, names_.at({claim.key, claim.token}), claim.ttl);
  const Deadline sent = BootClock::now();
  const ScriptReply reply = run(claim.key, script, call_options);
  if (verdict_of(reply.link.client->name(), reply, driver_->parts_of_a_refusal()) == 1) {
    return {grant_from(reply, sent, claim.ttl), reply.link};
  }
  refuse_other_kinds(claim.key, reply);
  return {refusal_from(key, reply), reply.link};
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
  return refusal;
}

Wake CompatStore::sleep(const Claim&, Deadline until, int cancel_fd) {
  return Wake{news_.await(until, cancel_fd), {}};
}

milliseconds CompatStore::ttl_of(const Claim& claim, const RenewalOptions& terms) const {
  if (terms.ttl) return *terms.ttl;
  const auto known = granted_.find({claim.key, claim.token});
  if (known != granted_.end()) return known->second.ttl;
  if (terms.granted) return claim.ttl;
  throw_usage("this layout does not tell the ttl of a hold: renew it with --ttl");
}

Renewed CompatStore::renew(const Claim& claim, const RenewalOptions& terms,
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
      const Reply kept = run(key, driver_->keep(driver_->key_of(key), name, rest), call_options);
      const bool is_kept = has_verdict(kept) && kept.items[0].integer == 1;
      return {is_kept ? Released::yes : Released::not_held};
    }
  }
  ScriptRun script = driver_->release(driver_->key_of(key), name);
  // A server that stalls may still take the lock after we stop reading its answers. If it does not
  // know the script then, nobody would send it the text.
  const bool gives_up = known != names_.end() && granted == granted_.end();
  script.by_text = gives_up || how.mode == ReleaseMode::ignore_floor;
  const ScriptReply answer = run(key, script, call_options);
  if (answer.integer != 1 && !answer.sent_twice) return {};
  granted_.erase(hold);
  return {Released::yes};
}

std::vector<Holder> CompatStore::evict(const LockKey& key, std::optional<Fence>, const Who&,
                                       const CallOptions& call_options) {
  driver_->check_name(key);
  const std::string name = driver_->key_of(key);
  while (true) {
    const Reply seen = run(key, driver_->evict(name, ""), call_options);
    refuse_other_kinds(key, seen);
    constexpr std::size_t of_a_victim = 4;
    if (!seen.is_array(of_a_victim)) return {};
    Holder victim = driver_->holder_in(name, seen);
    const std::string victims_name = seen.items.back().text;
    if (victims_name.empty()) throw_unavailable(this->name() + ": unexpected answer");
    const ScriptReply answer = run(key, driver_->evict(name, victims_name), call_options);
    // Whatever the key holds now: the first of the two copies may have evicted the victim.
    if (answer.sent_twice) return {std::move(victim)};
    refuse_other_kinds(key, answer);
    if (verdict_of(this->name(), answer, 1) == 1) return {std::move(victim)};
    // The victim has released the lock since, and another client may hold it.
  }
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
  const auto looks = driver_->look(name);
  const auto replies = servers_->read({name}, looks, call_options);
  for (const Reply& reply : replies) check(key, this->name(), reply, call_options);
  return driver_->seen_in(name, replies);
}

ScriptReply CompatStore::run(const LockKey& key, const ScriptRun& script,
                             const CallOptions& call_options) {
  ScriptReply reply = servers_->run_script(script, call_options);
  check(key, reply.link.client->name(), reply, call_options);
  return reply;
}

void CompatStore::check(const LockKey& key, const std::string& server, const Reply& reply,
                        const CallOptions& call_options) {
  if (!reply.is_error()) return;
  if (is_of_class(reply, "WRONGTYPE")) {
    const std::string is = what_is(*servers_, driver_->key_of(key), call_options);
    throw Error(ErrorKind::wrong_data, server + ": " + escaped(key.text) + ": " + is);
  }
  const Error error = server_error(reply, server);
  throw error.reworded(error.what() + advice_on_a_cluster(reply));
}

void CompatStore::refuse_other_kinds(const LockKey& key, const Reply& answer) const {
  if (!has_verdict(answer) || answer.items[0].integer >= 0) return;
  const std::string kind = answer.is_array(2) ? escaped(answer.items[1].text) : "another lock";
  throw Error(ErrorKind::wrong_data, name() + ": " + escaped(key.text) + " is " + kind +
                                         ", which --compat " + driver_->layout().row->name +
                                         " does not share");
}

}  // namespace dlock
