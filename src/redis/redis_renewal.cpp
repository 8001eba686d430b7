#include <algorithm>

#include "base/error.hpp"
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
  return renew_with(renewal_arguments(claim, terms.ttl, std::nullopt), {claim.key, claim.token},
                    call_options);
}

Renewed RedisStore::renew_with(const std::vector<std::string>& arguments, const Asked& asked,
                               const CallOptions& call_options) {
  const LockKey& key = asked.first;
  const Deadline sent = BootClock::now();
  const Reply reply = run(key, arguments, call_options);
  const int link = links();
  if (word(reply, 0) == "gone") {
    tidy(key, number(reply, 1), call_options);
    return {std::nullopt, evictor_in(reply)};
  }
  if (word(reply, 0) != "renewed") unexpected_answer();
  const milliseconds lease = span(reply, 1);
  pending_->known.insert(asked);
  if (pending_->handed_over.contains(asked)) replicate(key, link, call_options);
  pending_->handed_over.erase(asked);
  tidy(key, number(reply, 4), call_options);
  return {Grant{Fence{number(reply, 2)}, Lease{lease, valid_until(sent, lease)}, true,
                Limit{number(reply, 3)}}};
}

ReleaseResult RedisStore::release(const Claim& claim, const ReleaseOptions& how,
                                  const CallOptions& call_options) {
  const Asked asked{claim.key, claim.token};
  if (how.renewed_elsewhere) pending_->known.erase(asked);
  // What somebody else asked of one server of several may not have arrived there yet.
  const bool is_known = !terms_.member || pending_->known.contains(asked);
  const bool never_sent = links() == 0 && !terms_.cluster;
  if (is_known && never_sent && pending_->unanswered.contains(asked)) return {};
  bool unsure = !is_known || may_come_after(asked);
  ReleaseResult result = release_once(asked, how.mode, unsure, call_options);
  // The link broke meanwhile: what was to be done in order on it may now be done later.
  if (!unsure && may_come_after(asked)) {
    const ReleaseResult again = release_once(asked, how.mode, true, call_options);
    if (result.outcome == Released::not_held) result = again;
  }
  pending_->unanswered.erase(asked);
  return result;
}

/// A request sent on another link than the one we have may be done after what is sent now.
bool RedisStore::may_come_after(const Asked& asked) const {
  const auto found = pending_->unanswered.find(asked);
  if (found == pending_->unanswered.end()) return false;
  return !is_open() || found->second != Pending::Sent{&connection(), links()};
}

ReleaseResult RedisStore::release_once(const Asked& asked, ReleaseMode mode, bool unsure,
                                       const CallOptions& call_options) {
  constexpr milliseconds tombstone_life{60'000};
  const auto& [key, token] = asked;
  std::vector<std::string> arguments{"release", token.text};
  if (unsure || mode != ReleaseMode::normal) {
    arguments.insert(arguments.end(),
                     {unsure ? "1" : "0", mode == ReleaseMode::ignore_floor ? "1" : "0",
                      std::to_string(tombstone_life.count())});
  }
  const Reply reply = run(key, arguments, call_options);
  const bool first_may_have_done_it = sent_twice();
  tidy(key, number(reply, 1), call_options);
  if (word(reply, 0) == "released") return {Released::yes};
  if (word(reply, 0) == "left") return {Released::left_queue};
  return {first_may_have_done_it ? Released::yes : Released::not_held, evictor_in(reply)};
}

std::vector<Holder> RedisStore::evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                                      const CallOptions& call_options) {
  const std::string which = fence ? std::to_string(fence->value) : "";
  const Reply reply = run(key, {"force", "", which, packed_who(by)}, call_options);
  tidy(key, number(reply, 2), call_options);
  return holders_from(reply, 3, number(reply, 1));
}

}  // namespace dlock
