#include "redis/redis_store.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "redis/entry_format.hpp"
#include "redis/latch_script.hpp"
#include "redis/lock_script.hpp"
#include "redis/record_max_script.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

/// The client that a reply names at this place, if it names one.
std::optional<Who> who_in(const Reply& reply, std::size_t place) {
  if (reply.items.size() <= place || reply_text(reply, place).empty()) return std::nullopt;
  return parse_who(reply_text(reply, place));
}

/// The predecessor that a reply names by two items from this place on, if it names one.
std::optional<Predecessor> predecessor_in(const Reply& reply, std::size_t place) {
  const auto evictor = who_in(reply, place + 1);
  return evictor ? std::optional(Predecessor{*evictor, reply_ms(reply, place)}) : std::nullopt;
}

/// The client that evicted a hold, in the reply about the missing hold.
std::optional<Who> evictor_in(const Reply& reply) { return who_in(reply, 2); }

/// The first arguments of an `operation` that takes a whole claim.
std::vector<std::string> claim_arguments(const std::string& operation, const Claim& claim) {
  return {operation, claim.token.text, packed_claim(claim), std::to_string(claim.floor.count()),
          std::to_string(std::max(claim.ttl, claim.floor).count())};
}

std::vector<std::string> acquire_arguments(const Claim& claim, const Ask& ask,
                                           const std::string& channel) {
  const auto& proposal = ask.proposal;
  auto arguments = claim_arguments("acquire", claim);
  const bool has_ticket = ask.ticket && (ask.wait || proposal);
  if (ask.wait || proposal || claim.latest) {
    arguments.push_back(has_ticket ? std::to_string(ask.ticket->value) : "");
    arguments.push_back(channel);
  }
  if (proposal || claim.latest) {
    arguments.push_back(proposal ? std::to_string(proposal->value) : "-");
  }
  if (claim.latest) arguments.emplace_back("latest");
  return arguments;
}

/// The arguments of `renew`; only a node of a quorum takes a fence.
std::vector<std::string> renewal_arguments(const Claim& claim, std::optional<milliseconds> ttl,
                                           std::optional<Fence> granted) {
  std::vector<std::string> arguments{"renew", claim.token.text,
                                     ttl ? std::to_string(ttl->count()) : ""};
  const pid_t command_pid = claim.who.command_pid;
  if (granted || command_pid != 0) {
    arguments.push_back(granted ? std::to_string(granted->value) : "");
  }
  if (command_pid != 0) arguments.push_back(packed_command(command_pid));
  return arguments;
}

}  // namespace

ScriptReply RedisStore::run(const LockKey& key, const std::vector<std::string>& arguments,
                            const CallOptions& call_options) {
  ScriptReply reply = call(key, arguments, "", nullptr, call_options);
  check(key, reply);
  return reply;
}

ScriptReply RedisStore::run_noted(const Asked& asked, const std::vector<std::string>& arguments,
                                  const std::string& channel, const CallOptions& call_options) {
  known_.insert(asked);
  LinkId& unanswered = unanswered_[asked];
  ScriptReply reply = call(asked.first, arguments, channel, &unanswered, call_options);
  // Otherwise another copy of the request can still arrive.
  if (unanswered == LinkId{}) unanswered_.erase(asked);
  check(asked.first, reply);
  return reply;
}

void RedisStore::check(const LockKey& key, const ScriptReply& reply) const {
  if (!reply.is_error()) return;
  const Error error = server_error(reply);
  const bool of_the_key = error.kind() == ErrorKind::wrong_data;
  const std::string server = reply.link.client->name();
  const std::string message = server + ": " + (of_the_key ? escaped(key.text) + ": " : "") +
                              error.what() +
                              (of_the_key ? redis_keys_text(options_.prefix, key) : "");
  throw error.reworded(message);
}

ScriptReply RedisStore::call(const LockKey& key, const std::vector<std::string>& arguments,
                             const std::string& channel, LinkId* unanswered,
                             const CallOptions& call_options) {
  const KeyNames names(options_.prefix, key);
  ScriptRun run{.text = lock_script,
                .sha1 = lock_script_sha1,
                .keys = {names.holds, names.queue, names.waiters, names.fence},
                .arguments = arguments,
                .channel = channel.empty() ? "" : names.holds + ":" + channel,
                .server_argument = 2,
                .unanswered = unanswered};
  run.arguments.insert(run.arguments.begin() + 2, "");
  if (options_.member) run.keys.push_back(names.alive);
  return servers_->run_script(run, call_options);
}

void RedisStore::replicate(const LockKey& key, const LinkId& link,
                           const CallOptions& call_options) {
  if (options_.replicas == 0) return;
  const std::string of_key = link.client->name() + ": " + escaped(key.text) + ": ";
  // The remaining quarter is for the reply to arrive, and for a release.
  const auto limit = left_until(call_options.deadline) * 3 / 4;
  const Request wait{"WAIT", std::to_string(options_.replicas),
                     std::to_string(std::max(limit, milliseconds(1)).count())};
  ScriptReply reply;
  reply.link = link;
  try {
    static_cast<Reply&>(reply) = link.client->read({}, {wait}, call_options).front();
  } catch (const Error& error) {
    // The next request would wait for WAIT to end.
    if (error.kind() == ErrorKind::interrupted) link.client->close();
    if (error.kind() != ErrorKind::unavailable) throw;
  }
  check(key, reply);
  // A new connection has written nothing, so all replicas would count as up to date.
  if (!link.is_open()) {
    throw Error(ErrorKind::not_replicated,
                of_key + "the connection broke before the replicas acknowledged the lock",
                Cause::not_replicated);
  }
  if (reply.integer >= options_.replicas) return;
  throw Error(ErrorKind::not_replicated,
              of_key + "only " + std::to_string(reply.integer) + " of " +
                  std::to_string(options_.replicas) + " replicas acknowledged the lock in time",
              Cause::not_replicated);
}

const std::string& RedisStore::channel_of(const Token& token) {
  constexpr std::size_t bytes_of_a_channel = 8;
  auto& channel = channels_[token];
  if (channel.empty()) channel = random_hex(bytes_of_a_channel);
  return channel;
}

void RedisStore::tidy(const LockKey& key, std::int64_t more, const CallOptions& call_options) {
  try {
    while (more != 0 && left_until(call_options.deadline) > milliseconds(0)) {
      more = reply_number(run(key, {"tidy", ""}, call_options), 1);
    }
  } catch (const Error&) {
    // tidy() helps only other clients, which will ask again.
  }
}

Answer RedisStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  const std::string channel = ask.wait ? channel_of(claim.token) : "";
  const auto arguments = acquire_arguments(claim, ask, channel);
  while (true) {
    const Deadline sent = BootClock::now();
    const ScriptReply reply =
        run_noted({claim.key, claim.token}, arguments, ask.asks_again ? "" : channel, call_options);
    if (reply_text(reply, 0) == "granted") {
      replicate(claim.key, reply.link, call_options);
      tidy(claim.key, reply_number(reply, 2), call_options);
      Grant grant{Fence{reply_number(reply, 1)}, Lease{claim.ttl, valid_until(sent, claim.ttl)}};
      grant.predecessor = predecessor_in(reply, 3);
      return grant;
    }
    if (reply_text(reply, 0) != "refused") unexpected_answer();
    last_answer_ = {{sent, microseconds(reply_number(reply, 7))}, reply.link, reply.server};
    Refusal refusal = refusal_from(reply);
    const bool more = reply_number(reply, 8) != 0;
    const bool time_is_up = left_until(call_options.deadline) == milliseconds(0);
    if (!more || time_is_up || refusal.why != Refusal::Reason::held) return refusal;
  }
}

Wake RedisStore::sleep(const Claim& claim, Deadline until, int cancel_fd) {
  const std::string own =
      KeyNames(options_.prefix, claim.key).holds + ":" + channel_of(claim.token);
  while (true) {
    const auto heard = servers_->next_message(own, until, cancel_fd);
    if (const auto* why = std::get_if<Wake::Reason>(&heard)) return Wake{*why, {}};
    const std::string_view text = std::get<std::string>(heard);
    if (text.starts_with("grant ")) {
      return Wake{Wake::Reason::granted, {}, grant_in_message(text.substr(6), claim.ttl)};
    }
    if (text.starts_with("next ")) {
      const milliseconds ends_in = server_span(text.substr(5));
      return Wake{Wake::Reason::changed, later(BootClock::now(), ends_in)};
    }
    if (const auto end = end_of_sleep(until, cancel_fd)) return Wake{*end, {}};
  }
}

std::optional<Grant> RedisStore::grant_in_message(std::string_view text, milliseconds ttl) const {
  // After an unconfirmed grant the script grants shorter leases: too short to skip the renewal.
  constexpr milliseconds least_for_a_hiccup{2000};
  HandOver hand_over;
  hand_over.at = microseconds(server_number(take_until(text, ' ')));
  hand_over.lease = server_span(take_until(text, ' '));
  hand_over.fence = Fence{server_number(take_until(text, ' '))};
  const bool same_clock = text == last_answer_.server && last_answer_.link.is_open();
  const bool too_short = hand_over.lease < std::min(ttl, least_for_a_hiccup);
  if (options_.replicas > 0 || !same_clock || too_short) return std::nullopt;
  return handed_over_grant(last_answer_, hand_over, hand_over.lease * 2 / 3);
}

Fence RedisStore::record_max(const LockKey& resource, Fence fence,
                             const CallOptions& call_options) {
  const std::string key = KeyNames(options_.prefix, resource).fence_register;
  const ScriptRun script{.text = record_max_script,
                         .sha1 = record_max_script_sha1,
                         .keys = {key},
                         .arguments = {std::to_string(fence.value)}};
  const ScriptReply reply = servers_->run_script(script, call_options);
  check(resource, reply);
  if (!reply.items.empty()) return Fence{reply_number(reply, 0)};
  throw Error(ErrorKind::wrong_data,
              reply.link.client->name() + ": the key " + escaped(key) +
                  " holds something else than the fence of a guard: it is left as it is");
}

Renewed RedisStore::renew(const Claim& claim, const RenewalOptions& terms,
                          const CallOptions& call_options) {
  const auto granted = options_.member ? terms.granted : std::nullopt;
  const Deadline sent = BootClock::now();
  const ScriptReply reply =
      run(claim.key, renewal_arguments(claim, terms.ttl, granted), call_options);
  return renewed_by(reply, {claim.key, claim.token}, terms.ttl.value_or(claim.ttl), sent,
                    call_options);
}

std::optional<Grant> RedisStore::rejoin(const Claim& claim, Fence fence,
                                        const CallOptions& call_options) {
  const Asked asked{claim.key, claim.token};
  auto arguments = claim_arguments("rejoin", claim);
  arguments.push_back(std::to_string(fence.value));
  const Deadline sent = BootClock::now();
  const ScriptReply reply = run_noted(asked, arguments, "", call_options);
  return renewed_by(reply, asked, claim.ttl, sent, call_options).grant;
}

Renewed RedisStore::renewed_by(const ScriptReply& reply, const Asked& asked, milliseconds ttl,
                               Deadline sent, const CallOptions& call_options) {
  const LockKey& key = asked.first;
  if (reply_text(reply, 0) == "gone") {
    tidy(key, reply_number(reply, 1), call_options);
    return {std::nullopt, evictor_in(reply)};
  }
  if (reply_text(reply, 0) != "renewed") unexpected_answer();
  milliseconds lease = reply_ms(reply, 1);
  // The script never grants a longer lease; a forged one would delay the next renewal.
  if (ttl > milliseconds(0)) lease = std::min(lease, ttl);
  known_.insert(asked);
  // A replica without this renewal, if promoted, would expire the lease before the holder does.
  replicate(key, reply.link, call_options);
  tidy(key, reply_number(reply, 4), call_options);
  Grant grant{Fence{reply_number(reply, 2)}, Lease{lease, valid_until(sent, lease)}, true,
              Limit{reply_number(reply, 3)}};
  grant.predecessor = predecessor_in(reply, 6);
  return {grant, {}, who_in(reply, 5)};
}

ReleaseResult RedisStore::release(const Claim& claim, const ReleaseOptions& how,
                                  const CallOptions& call_options) {
  const Asked asked{claim.key, claim.token};
  if (how.renewed_elsewhere) known_.erase(asked);
  // In a quorum, another client's request for this hold may not have arrived at this server yet.
  const bool is_known = !options_.member || known_.contains(asked);
  if (is_known && !servers_->was_reached() && unanswered_.contains(asked)) return {};
  // A request that went out on another link may be executed after this one.
  const auto found = unanswered_.find(asked);
  const LinkId before = found == unanswered_.end() ? LinkId{} : found->second;
  const bool unsure = !is_known || (before != LinkId{} && !before.is_open());
  auto [result, link] = release_once(asked, how, unsure, call_options);
  if (!unsure && before != LinkId{} && before != link) {
    const auto again = release_once(asked, how, true, call_options).first;
    if (result.outcome == Released::not_held) result = again;
  }
  unanswered_.erase(asked);
  return result;
}

std::pair<ReleaseResult, LinkId> RedisStore::release_once(const Asked& asked,
                                                          const ReleaseOptions& how, bool unsure,
                                                          const CallOptions& call_options) {
  constexpr milliseconds tombstone_life{60'000};
  const auto& [key, token] = asked;
  std::vector<std::string> arguments{"release", token.text};
  const bool ignores_floor = how.mode == ReleaseMode::ignore_floor;
  if (how.exit_code) arguments.push_back(std::to_string(*how.exit_code));
  if (unsure || ignores_floor) {
    arguments.resize(3, "-");
    arguments.insert(arguments.end(), {unsure ? "1" : "0", ignores_floor ? "1" : "0",
                                       std::to_string(tombstone_life.count())});
  }
  const ScriptReply reply = run(key, arguments, call_options);
  const auto said = reply_text(reply, 0);
  if (said != "released" && said != "left" && said != "absent") unexpected_answer();
  tidy(key, reply_number(reply, 1), call_options);
  if (said == "released") return {{Released::yes}, reply.link};
  if (said == "left") return {{Released::left_queue}, reply.link};
  const auto evictor = evictor_in(reply);
  const bool released_before = reply.sent_twice && !evictor;
  return {{released_before ? Released::yes : Released::not_held, evictor}, reply.link};
}

std::vector<Holder> RedisStore::evict(const LockKey& key, const Eviction& how,
                                      const CallOptions& call_options) {
  while (true) {
    auto seen = look_at_holders(key, call_options);
    if (how.fence)
      std::erase_if(seen, [&](const Holder& each) { return each.fence != *how.fence; });
    if (seen.empty()) return {};
    // The request names the holds by their fences. A request that is sent twice could otherwise
    // evict a later holder.
    const auto fences =
        joined(seen, " ", [](const Holder& each) { return std::to_string(each.fence.value); });
    const ScriptReply reply =
        run(key, {how.asks ? "stop" : "force", "", fences, packed_who(how.by)}, call_options);
    tidy(key, reply_number(reply, 2), call_options);
    auto evicted = holders_from(reply, 3, reply_number(reply, 1));
    if (!evicted.empty()) return evicted;
    // The first copy, whose answer was lost, may have evicted the holders seen.
    if (reply.sent_twice) return seen;
    // The holders seen have released since, and others may hold the key already.
  }
}

LatchState RedisStore::open_latch(const LockKey& key, const LatchOptions& terms,
                                  const CallOptions& call_options) {
  const std::vector<std::string> arguments{"open", std::to_string(terms.count),
                                           std::to_string(terms.ttl.count())};
  return ask_latch(key, arguments, false, call_options).value_or(LatchState());
}

std::optional<LatchState> RedisStore::ask_latch(const LockKey& key,
                                                const std::vector<std::string>& arguments,
                                                bool listen, const CallOptions& call_options) {
  const std::string latch = KeyNames(options_.prefix, key).latch;
  LinkId unanswered;
  const ScriptRun run{.text = latch_script,
                      .sha1 = latch_script_sha1,
                      .keys = {latch},
                      .arguments = arguments,
                      .channel = listen ? latch : "",
                      .unanswered = &unanswered};
  Backoff backoff = backoff_of_redis();
  while (true) {
    unanswered = {};
    // Half of the time is left for another try; the router of a Cluster itself retries.
    const auto half = left_until(call_options.deadline) / (servers_->is_cluster() ? 1 : 2);
    const auto answer_by = std::min(call_options.deadline, later(BootClock::now(), half));
    ScriptReply reply;
    try {
      reply = servers_->run_script(run, {answer_by, call_options.cancel_fd});
    } catch (const Error& error) {
      // A server that refuses the connection has not run the script.
      const bool is_silent = unanswered.was_opened() || BootClock::now() >= answer_by;
      if (error.kind() != ErrorKind::unavailable || !is_silent ||
          !backoff.fits(call_options.deadline))
        throw;
      pause(backoff.next(), call_options);
      continue;
    }
    return latch_from(key, reply);
  }
}

std::optional<LatchState> RedisStore::latch_from(const LockKey& key,
                                                 const ScriptReply& reply) const {
  if (reply.is_error("WRONGTYPE") || reply.is_error("DLOCKDATA")) {
    throw Error(ErrorKind::wrong_data,
                reply.link.client->name() + ": " + escaped(key.text) +
                    ": the key holds data that is not a latch (it said: " + escaped(reply.text) +
                    ")" + redis_keys_text(options_.prefix, key));
  }
  check(key, reply);
  const LatchState state{reply_number(reply, 0), reply_number(reply, 1), reply_ms(reply, 2)};
  return state.count > 0 ? std::optional(state) : std::nullopt;
}

Wake::Reason RedisStore::sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) {
  const auto heard = servers_->next_message(KeyNames(options_.prefix, key).latch, until, cancel_fd);
  const auto* why = std::get_if<Wake::Reason>(&heard);
  return why != nullptr ? *why : Wake::Reason::changed;
}

}  // namespace dlock
