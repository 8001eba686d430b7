#include "redis/redis_store.hpp"

#include <algorithm>

#include "base/cut.hpp"
#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/hash.hpp"
#include "base/random.hpp"
#include "redis/lock_script.hpp"
#include "redis/redirection.hpp"
#include "redis/script_answer.hpp"
#include "redis/server_error.hpp"

namespace dlock {
RedisStore::RedisStore(std::unique_ptr<EndpointResolver> route, RedisTerms terms,
                       std::shared_ptr<Pending> pending, std::vector<Request> questions)
    : RedisClient(std::move(route), std::move(terms), std::move(questions)),
      pending_(std::move(pending)) {}

Reply RedisStore::run(const LockKey& key, const std::vector<std::string>& arguments,
                      const CallOptions& call_options) {
  Reply reply = call(key, arguments, "", call_options);
  check(key, reply);
  return reply;
}

void RedisStore::check(const LockKey& key, const Reply& reply) const {
  if (!reply.is_error()) return;
  const Error error = server_error(reply);
  const bool of_the_key = error.trouble() == ErrorKind::wrong_data;
  const std::string message = name() + ": " + (of_the_key ? escaped(key.text) + ": " : "") +
                              error.what() +
                              (of_the_key ? redis_keys_text(terms_.prefix, key) : "");
  throw_error(reply, error, message);
}

Reply RedisStore::call(const LockKey& key, const std::vector<std::string>& arguments,
                       const std::string& channel, const CallOptions& call_options) {
  const KeyNames names(terms_.prefix, key);
  ScriptRun run{lock_script,
                lock_script_sha1,
                {names.holds, names.queue, names.waiters, names.fence},
                arguments,
                channel.empty() ? "" : names.holds + ":" + channel,
                true};
  if (terms_.member) run.keys.push_back(names.alive);
  return run_script(run, call_options);
}

void RedisStore::replicate(const LockKey& key, int link, const CallOptions& call_options) {
  if (terms_.replicas == 0) return;
  const std::string of_key = name() + ": " + escaped(key.text) + ": ";
  // The rest is for the answer to come, and for giving back.
  const auto limit = left_until(call_options.deadline) * 3 / 4;
  const Request wait{"WAIT", std::to_string(terms_.replicas),
                     std::to_string(std::max(limit, milliseconds(1)).count())};
  Reply reply;
  try {
    reply = read({wait}, call_options).front();
  } catch (const Error& error) {
    if (error.trouble() != ErrorKind::unavailable) throw;
  }
  check(key, reply);
  // A new connection has written nothing, so that every replica would have all of it.
  if (links() != link || !is_open()) {
    throw Error(
        ErrorKind::not_replicated,
        of_key + "the connection broke while dlock waited for replicas: the lock is released",
        Cause::not_replicated);
  }
  if (reply.integer >= terms_.replicas) return;
  throw Error(ErrorKind::not_replicated,
              of_key + "only " + std::to_string(reply.integer) + " of " +
                  std::to_string(terms_.replicas) + " replicas have the lock, so it is released",
              Cause::not_replicated);
}

const std::string& RedisStore::channel_of(const Token& token) {
  constexpr std::size_t bytes_of_a_channel = 8;
  auto& channel = channels_[token];
  if (channel.empty()) channel = random_hex(bytes_of_a_channel);
  return channel;
}

void RedisStore::note_asked(const Asked& asked) {
  note_own(asked);
  auto& sent = pending_->unanswered[asked];
  const bool went_out = sent.connection != nullptr && sent.link <= sent.connection->links();
  if (!went_out) sent = {&connection(), links() + (is_open() ? 0 : 1)};
}

void RedisStore::note_answered(const Asked& asked) {
  const auto found = pending_->unanswered.find(asked);
  const Pending::Sent here{&connection(), links()};
  if (found != pending_->unanswered.end() && found->second == here) {
    pending_->unanswered.erase(found);
  }
}

void RedisStore::tidy(const LockKey& key, std::int64_t more, const CallOptions& call_options) {
  try {
    std::int64_t left = more;
    // A server that always has more is left at the deadline.
    while (left != 0 && left_until(call_options.deadline) > milliseconds(0))
      left = number(run(key, {"tidy", ""}, call_options), 1);
  } catch (const Error&) {
    close();
  }
}

Answer RedisStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  return acquire_with({}, claim, ask, call_options);
}

Answer RedisStore::acquire_with(const std::optional<Fence>& proposal, const Claim& claim,
                                const Ask& ask, const CallOptions& call_options) {
  bool more = true;
  while (true) {
    Answer answer = ask_once(proposal, claim, ask, call_options, more);
    const auto* refusal = std::get_if<Refusal>(&answer);
    const bool time_is_up = left_until(call_options.deadline) == milliseconds(0);
    if (!more || time_is_up || refusal == nullptr || refusal->why != Refusal::Reason::held) {
      return answer;
    }
  }
}

Answer RedisStore::ask_once(const std::optional<Fence>& proposal, const Claim& claim,
                            const Ask& ask, const CallOptions& call_options, bool& more) {
  const std::string channel = ask.wait ? channel_of(claim.token) : "";
  auto arguments = claim_arguments("acquire", claim);
  if (ask.wait || proposal) {
    arguments.push_back(ask.ticket ? std::to_string(ask.ticket->value) : "");
    arguments.push_back(channel);
  }
  if (ask.asks_again) {
    const std::string here = place(call_options);
    if (!here.empty()) arguments.back() += "@" + here;
  }
  if (proposal) arguments.push_back(std::to_string(proposal->value));
  if (claim.latest) {
    constexpr std::size_t before_proposal = channel_argument + 1;
    arguments.resize(std::max(arguments.size(), before_proposal));
    if (!proposal) arguments.emplace_back("-");
    arguments.emplace_back("latest");
  }
  const Asked asked{claim.key, claim.token};
  note_asked(asked);
  const Deadline sent = BootClock::now();
  const Reply reply = call(claim.key, arguments, ask.asks_again ? "" : channel, call_options);
  const int link = links();
  note_answered(asked);
  check(claim.key, reply);
  if (word(reply, 0) == "granted") {
    more = false;
    replicate(claim.key, link, call_options);
    pending_->handed_over.erase(asked);
    tidy(claim.key, number(reply, 2), call_options);
    return Grant{Fence{number(reply, 1)}, Lease{claim.ttl, valid_until(sent, claim.ttl)}};
  }
  if (word(reply, 0) != "refused") unexpected_answer();
  more = number(reply, 8) != 0;
  last_answer_ = {{sent, server_clock(word(reply, 7))}, link, here()};
  return refusal_from(reply);
}

Wake RedisStore::sleep(const Claim& claim, Deadline until, int cancel_fd) {
  const std::string own = KeyNames(terms_.prefix, claim.key).holds + ":" + channel_of(claim.token);
  while (true) {
    const auto heard = next_on(own, until, cancel_fd);
    if (const auto* why = std::get_if<Wake::Reason>(&heard)) return Wake{*why, {}};
    const std::string_view text = std::get<std::string>(heard);
    if (text.starts_with("grant ")) {
      pending_->handed_over.insert({claim.key, claim.token});
      return Wake{Wake::Reason::granted, {}, grant_told_by(text.substr(6), claim.ttl)};
    }
    if (text.starts_with("next ")) {
      const milliseconds ends_in = server_span(text.substr(5));
      return Wake{Wake::Reason::changed, later(BootClock::now(), ends_in)};
    }
    if (const auto end = end_of_sleep(until, cancel_fd)) return Wake{*end, {}};
  }
}

std::optional<Grant> RedisStore::grant_told_by(std::string_view message, milliseconds ttl) const {
  // After a waiter that did not confirm the server grants for a moment only.
  constexpr milliseconds least_for_a_hiccup{2000};
  HandOver told;
  told.at = server_clock(take_until(message, ' '));
  told.lease = server_span(take_until(message, ' '));
  told.fence = Fence{server_number(take_until(message, ' '))};
  const bool same_clock = message == last_answer_.place && links() == last_answer_.link;
  const bool too_short = told.lease < std::min(ttl, least_for_a_hiccup);
  if (terms_.replicas > 0 || !same_clock || too_short) return std::nullopt;
  return told_grant(last_answer_, told, told.lease * 2 / 3);
}

}  // namespace dlock
