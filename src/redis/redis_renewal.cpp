#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "redis/redis_store.hpp"
#include "redis/script_answer.hpp"

// A hold from its renewals to its release or eviction.

namespace dlock {
namespace {

/// Who evicted a hold, as the answer says that it is not there.
std::optional<Who> evictor_in(const Reply& reply) {
  constexpr std::size_t place_of_who = 2;
  if (reply.items.size() <= place_of_who) return std::nullopt;
  return parse_who(word(reply, place_of_who));
}

}  // namespace

Renewed RedisStore::renew(const Claim& claim, const RenewalTerms& terms,
                          const CallOptions& call_options) {
  const auto granted = terms_.member ? terms.granted : std::nullopt;
  return renew_with(renewal_arguments(claim, terms.ttl, granted), {claim.key, claim.token},
                    terms.ttl.value_or(claim.ttl), call_options);
}

std::optional<Grant> RedisStore::rejoin(const Claim& claim, Fence fence,
                                        const CallOptions& call_options) {
  const Asked asked{claim.key, claim.token};
  auto arguments = claim_arguments("rejoin", claim);
  arguments.push_back(std::to_string(fence.value));
  LinkId& unanswered = note_asked(asked);
  auto grant = renew_with(arguments, asked, claim.ttl, call_options, &unanswered).grant;
  note_answered(asked);
  return grant;
}

Renewed RedisStore::renew_with(const std::vector<std::string>& arguments, const Asked& asked,
                               milliseconds ttl, const CallOptions& call_options,
                               LinkId* unanswered) {
  const LockKey& key = asked.first;
  const Deadline sent = BootClock::now();
  const ScriptReply reply = run(key, arguments, call_options, unanswered);
  if (word(reply, 0) == "gone") {
    tidy(key, number(reply, 1), call_options);
    return {std::nullopt, evictor_in(reply)};
  }
  if (word(reply, 0) != "renewed") unexpected_answer();
  milliseconds lease = span(reply, 1);
  // With a longer one, which no server of ours gives, the command would run on unrenewed.
  if (ttl > milliseconds(0)) lease = std::min(lease, ttl);
  known_.insert(asked);
  // Else a replica that is promoted would end the lease before the holder does.
  replicate(key, reply.link, call_options);
  tidy(key, number(reply, 4), call_options);
  return {Grant{server_fence(word(reply, 2)), Lease{lease, valid_until(sent, lease)}, true,
                Limit{number(reply, 3)}}};
}

ReleaseResult RedisStore::release(const Claim& claim, const ReleaseOptions& how,
                                  const CallOptions& call_options) {
  const Asked asked{claim.key, claim.token};
  if (how.renewed_elsewhere) known_.erase(asked);
  // What somebody else asked of one server of several may not have arrived there yet.
  const bool is_known = !terms_.member || known_.contains(asked);
  if (is_known && !servers_->was_reached() && unanswered_.contains(asked)) return {};
  // A request that went out on another link may be done after what is sent now.
  const LinkId before = link_unanswered(asked);
  const bool unsure = !is_known || (before != LinkId{} && !before.is_open());
  auto [result, link] = release_once(asked, how.mode, unsure, call_options);
  if (!unsure && before != LinkId{} && before != link) {
    const auto again = release_once(asked, how.mode, true, call_options).first;
    if (result.outcome == Released::not_held) result = again;
  }
  unanswered_.erase(asked);
  return result;
}

LinkId RedisStore::link_unanswered(const Asked& asked) const {
  const auto found = unanswered_.find(asked);
  return found == unanswered_.end() ? LinkId{} : found->second;
}

std::pair<ReleaseResult, LinkId> RedisStore::release_once(const Asked& asked, ReleaseMode mode,
                                                          bool unsure,
                                                          const CallOptions& call_options) {
  constexpr milliseconds tombstone_life{60'000};
  const auto& [key, token] = asked;
  std::vector<std::string> arguments{"release", token.text};
  if (unsure || mode != ReleaseMode::normal) {
    arguments.insert(arguments.end(),
                     {unsure ? "1" : "0", mode == ReleaseMode::ignore_floor ? "1" : "0",
                      std::to_string(tombstone_life.count())});
  }
  const ScriptReply reply = run(key, arguments, call_options);
  const auto said = word(reply, 0);
  if (said != "released" && said != "left" && said != "absent") unexpected_answer();
  tidy(key, number(reply, 1), call_options);
  if (said == "released") return {{Released::yes}, reply.link};
  if (said == "left") return {{Released::left_queue}, reply.link};
  const auto evictor = evictor_in(reply);
  const bool released_before = reply.sent_twice && !evictor;
  return {{released_before ? Released::yes : Released::not_held, evictor}, reply.link};
}

std::vector<Holder> RedisStore::evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                                      const CallOptions& call_options) {
  while (true) {
    auto seen = look_at_holders(key, call_options);
    if (fence) std::erase_if(seen, [&](const Holder& each) { return each.fence != *fence; });
    if (seen.empty()) return {};
    auto evicted = evict_seen(key, seen, by, call_options);
    if (!evicted.empty()) return evicted;
    // They have released it since, and the next may have it already.
  }
}

std::vector<Holder> RedisStore::evict_seen(const LockKey& key, const std::vector<Holder>& seen,
                                           const Who& by, const CallOptions& call_options) {
  if (seen.empty()) return {};
  // A request that is sent twice would evict whoever holds the key by then, whom nobody meant: so
  // it names them.
  const auto fences =
      joined(seen, " ", [](const Holder& each) { return std::to_string(each.fence.value); });
  const ScriptReply reply = run(key, {"force", "", fences, packed_who(by)}, call_options);
  tidy(key, number(reply, 2), call_options);
  auto evicted = holders_from(reply, 3, number(reply, 1));
  return evicted.empty() && reply.sent_twice ? seen : evicted;
}

}  // namespace dlock
