#include "compat/compat_store.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "compat/foreign_lock.hpp"
#include "compat/redisson_script.hpp"
#include "compat/string_script.hpp"
#include "compat/symfony_script.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

/// Describes a hash that is not a plain lock of Redisson.
const char* fault_of(const Fields& fields) {
  for (const auto& [field, value] : fields) {
    if (field == "mode") return "a Redisson read/write lock";
  }
  return fields.size() == 1 ? "a hash that no client of Redisson wrote"
                            : "a hash with several fields";
}

constexpr const char* invalidations = "__redis__:invalidate";
constexpr milliseconds longest_set_up{1000};
constexpr milliseconds between_set_ups{1000};

/// How long a waiter sleeps at most, because an invalidation may be lost.
constexpr milliseconds longest_sleep_behind_others{1000};
constexpr milliseconds shortest_poll{70};
constexpr milliseconds poll_spread{60};

/// The first number of a script's answer: 1, 0 or -1.
std::int64_t verdict_of(const std::string& server, const Reply& answer) {
  const bool has_verdict = answer.is_array(1) && answer.items[0].kind == Reply::Kind::integer;
  if (!has_verdict || answer.items[0].integer > 1) {
    throw_unavailable(server + ": unexpected answer");
  }
  return answer.items[0].integer;
}

Grant grant_from(const Reply& answer, Deadline sent, milliseconds ttl) {
  const Fence fence{answer.is_array(2) ? answer.items[1].integer : 0};
  return {fence, Lease{ttl, valid_until(sent, ttl)}};
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

ScriptRun LockDriver::run(const char* operation, const std::string& key, const HoldMark& mark,
                          milliseconds ttl) const {
  ScriptRun run{string_script,
                string_script_sha1,
                layout_.keys_of_lock(key),
                {operation, mark.proof, std::to_string(ttl.count()), mark.written}};
  const auto notified = layout_.release_channels(key);
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

bool ReleaseListener::listen(const LinkId& link, const std::string& key,
                             const CallOptions& call_options) {
  key_ = key;
  const bool is_broken = connection_ && !connection_->is_open();
  if (link_ == link && (!is_broken || BootClock::now() < again_at_)) return false;
  close();
  RedisClient& client = *link.client;
  try {
    open(client, at_most(longest_set_up, call_options));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    if (connection_) connection_->close();
  }
  link_ = {&client, client.links()};
  again_at_ = later(BootClock::now(), between_set_ups);
  return works();
}

void ReleaseListener::open(RedisClient& client, const CallOptions& call_options) {
  connection_.emplace(client.connect(call_options));
  const std::vector<Request> requests{{"CLIENT", "ID"}, {"SUBSCRIBE", invalidations}};
  const auto replies = connection_->exchange(requests, call_options);
  bool works = !replies[0].is_error() && !replies[1].is_error();
  if (works) {
    const std::string listener = std::to_string(replies[0].integer);
    const auto tracking =
        client.read({}, {{"CLIENT", "TRACKING", "ON", "REDIRECT", listener}}, call_options);
    works = !tracking.front().is_error();
  }
  if (!works) connection_.reset();
}

Wake::Reason ReleaseListener::await(Deadline until, int cancel_fd) {
  try {
    while (works()) {
      const auto next = connection_->next_message(until, cancel_fd);
      if (const auto* why = std::get_if<Wake::Reason>(&next)) return *why;
      // The server names no key if it has dropped all tracked keys.
      const auto& key = std::get<Published>(next).payload;
      if (key.empty() || key == key_) return paced(until, cancel_fd);
    }
  } catch (const Error&) {
    connection_->close();
    // If listeners are closed as fast as they are opened, retry no faster than a poll.
    until = std::min(until, later(BootClock::now(), milliseconds(100)));
  }
  return sleep_until(until, cancel_fd) ? Wake::Reason::interrupted : Wake::Reason::due;
}

/// Limits the rate of wake-ups, because each renewal of the holder causes one. With a short lease
/// the waiter asks at most twice a second in the long run, but at once after a quiet time.
Wake::Reason ReleaseListener::paced(Deadline until, int cancel_fd) {
  constexpr milliseconds each{500};
  constexpr milliseconds ahead{4000};
  const auto now = BootClock::now();
  pace_ = std::max(pace_, now) + each;
  const auto ask_at = std::min(until, pace_ - ahead);
  if (ask_at > now && sleep_until(ask_at, cancel_fd)) return Wake::Reason::interrupted;
  return Wake::Reason::changed;
}

void ReleaseListener::close() {
  connection_.reset();
  link_ = {};
}

Answer CompatStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  driver_.check_name(claim.key);
  Hold& hold = hold_of(claim);
  // Each request makes the mark anew: a dated value says when the lock was taken, not when the wait
  // began.
  hold.mark = driver_.layout().mark_of(claim.token);
  const auto sent = BootClock::now();
  Try last = take(claim, hold.mark, call_options);
  // A release between the read and the start of listening would wake no waiter, so ask again.
  if (std::holds_alternative<Refusal>(last.answer) && ask.wait && !ask.asks_again &&
      listener_.listen(last.link, driver_.key_of(claim.key), call_options)) {
    last = take(claim, hold.mark, call_options);
  }
  if (auto* refusal = std::get_if<Refusal>(&last.answer)) {
    if (!listener_.works()) {
      refusal->ask_again_in =
          std::min(refusal->ask_again_in, shortest_poll + random_up_to(poll_spread));
    }
    return *refusal;
  }
  hold = {hold.mark, true, sent, claim.ttl, claim.floor};
  listener_.close();
  auto& grant = std::get<Grant>(last.answer);
  grant.lease.valid_until = valid_until(sent, claim.ttl);
  return grant;
}

CompatStore::Hold& CompatStore::hold_of(const Claim& claim) {
  const auto [found, is_new] = holds_.try_emplace({claim.key, claim.token});
  if (is_new) found->second.mark = driver_.layout().mark_of(claim.token);
  return found->second;
}

CompatStore::Try CompatStore::take(const Claim& claim, const HoldMark& mark,
                                   const CallOptions& call_options) {
  constexpr std::size_t parts_of_a_refusal = 3;
  const std::string key = driver_.key_of(claim.key);
  const Deadline sent = BootClock::now();
  const ScriptReply reply = run(claim.key, driver_.run("take", key, mark, claim.ttl), call_options);
  const std::string& server = reply.link.client->name();
  if (verdict_of(server, reply) == 1) return {grant_from(reply, sent, claim.ttl), reply.link};
  Refusal refusal;
  refusal.unordered = true;
  refusal.holders = 1;
  refusal.ask_again_in = longest_sleep_behind_others;
  if (!reply.is_array(parts_of_a_refusal)) throw_unavailable(server + ": unexpected answer");
  const auto holder =
      holder_in(claim.key, {key, driver_.layout().type(), reply.items[1], reply.items[2]});
  if (!holder) throw_unavailable(server + ": unexpected answer");
  refusal.held_by = {*holder};
  // A majority must not count the votes of different holders as those of one owner.
  refusal.held_by.front().owner = std::to_string(fnv1a(driver_.proof_of_victim(reply.items[2])));
  if (holder->lease_left) {
    refusal.ask_again_in = std::min(*holder->lease_left + milliseconds(1), refusal.ask_again_in);
  }
  return {refusal, reply.link};
}

Wake CompatStore::sleep(const Claim&, Deadline until, int cancel_fd) {
  return Wake{listener_.await(until, cancel_fd), BootClock::now()};
}

milliseconds CompatStore::ttl_of(const Hold& hold, const Claim& claim,
                                 const RenewalOptions& terms) {
  if (terms.ttl) return *terms.ttl;
  if (hold.is_granted) return hold.ttl;
  if (terms.granted) return claim.ttl;
  throw_usage("this layout does not tell the ttl of a hold: renew it with --ttl");
}

Renewed CompatStore::renew(const Claim& claim, const RenewalOptions& terms,
                           const CallOptions& call_options) {
  driver_.check_name(claim.key);
  Hold& hold = hold_of(claim);
  const milliseconds ttl = ttl_of(hold, claim, terms);
  const Deadline sent = BootClock::now();
  const ScriptRun script = driver_.run("renew", driver_.key_of(claim.key), hold.mark, ttl);
  const Reply answer = run(claim.key, script, call_options);
  if (verdict_of(name(), answer) != 1) return {};
  return {grant_from(answer, sent, ttl)};
}

ReleaseResult CompatStore::release(const Claim& claim, const ReleaseOptions& how,
                                   const CallOptions& call_options) {
  const auto& key = claim.key;
  driver_.check_name(key);
  const bool is_known = holds_.contains({key, claim.token});
  if (is_known && !servers_->was_reached()) return {};
  Hold hold = is_known ? hold_of(claim) : Hold{driver_.layout().mark_of(claim.token)};
  const milliseconds rest = hold.floor - passed_since(hold.granted_at);
  const bool keeps = hold.is_granted && how.mode == ReleaseMode::normal && rest > milliseconds(0);
  const std::string name = driver_.key_of(key);
  const auto script =
      keeps ? driver_.run("keep", name, hold.mark, rest) : driver_.run("release", name, hold.mark);
  const ScriptReply answer = run(key, script, call_options);
  const bool is_done = verdict_of(this->name(), answer) == 1;
  if (keeps) return {is_done ? Released::yes : Released::not_held};
  holds_.erase({key, claim.token});
  return {is_done || answer.sent_twice ? Released::yes : Released::not_held};
}

std::vector<Holder> CompatStore::evict(const LockKey& key, const Eviction& how,
                                       const CallOptions& call_options) {
  while (true) {
    const KeyLook look = look_at(key, call_options);
    const auto victim = holder_in(key, look);
    if (how.asks) return victim ? std::vector{*victim} : std::vector<Holder>{};
    const HoldMark mark{"", driver_.proof_of_victim(look.contents)};
    const ScriptReply answer = run(key, driver_.run("evict", look.name, mark), call_options);
    const auto verdict = verdict_of(name(), answer);
    if (!victim) return {};
    // If the request was sent twice, the first copy may have evicted the victim.
    if (verdict == 1 || answer.sent_twice) return {*victim};
    // The victim has released the lock since, and another client may hold it.
  }
}

std::vector<KeyState> CompatStore::inspect(const Query& query, const CallOptions& call_options) {
  std::vector<KeyState> states;
  for (const LockKey& key : query.keys) {
    KeyState state{key};
    if (auto holder = holder_in(key, look_at(key, call_options))) {
      state.holders.push_back(std::move(*holder));
    }
    states.push_back(std::move(state));
  }
  return states;
}

KeyLook CompatStore::look_at(const LockKey& key, const CallOptions& call_options) {
  driver_.check_name(key);
  const std::string name = driver_.key_of(key);
  const char* const type = driver_.layout().type();
  auto replies =
      servers_->read({name}, {{"PTTL", name}, contents_request(type, name)}, call_options);
  for (const Reply& reply : replies) check(key, this->name(), reply, call_options);
  return {name, type, std::move(replies.at(0)), std::move(replies.at(1))};
}

std::optional<Holder> CompatStore::holder_in(const LockKey& key, const KeyLook& look) const {
  return driver_.holder_in(name() + ": " + escaped(key.text), look);
}

ScriptReply CompatStore::run(const LockKey& key, const ScriptRun& script,
                             const CallOptions& call_options) {
  ScriptReply reply = servers_->run_script(script, call_options);
  check(key, reply.link.client->name(), reply, call_options);
  if (reply.is_array(2) && reply.items[0].integer < 0) {
    driver_.refuse(name() + ": " + escaped(key.text), escaped(reply.items[1].text));
  }
  return reply;
}

void CompatStore::check(const LockKey& key, const std::string& server, const Reply& reply,
                        const CallOptions& call_options) {
  if (!reply.is_error()) return;
  if (reply.is_error("WRONGTYPE")) {
    const std::string is = what_is(*servers_, driver_.key_of(key), call_options);
    throw Error(ErrorKind::wrong_data, server + ": " + escaped(key.text) + ": " + is);
  }
  throw server_error(reply, server);
}

}  // namespace dlock
