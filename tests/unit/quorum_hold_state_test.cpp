#include <doctest/doctest.h>

#include <algorithm>

#include "quorum/hold_state.hpp"

namespace dlock {
namespace {

using State = NodeVote::State;

const auto in_an_hour = later(BootClock::now(), std::chrono::hours(1));

Claim claim_of(const std::string& owner, Limit limit = exclusive) {
  Claim claim;
  claim.key = LockKey{"k"};
  claim.owner = Owner{owner};
  claim.token = Token{owner + ":1"};
  claim.limit = limit;
  claim.ttl = milliseconds(30'000);
  return claim;
}

NodeReply granted(std::size_t node, std::int64_t fence, Deadline until = in_an_hour) {
  return {node, 1, {}, Answer(Grant{Fence{fence}, Lease{milliseconds(30'000), until}})};
}

NodeReply refused(std::size_t node, const std::vector<std::string>& owners, Limit limit = exclusive,
                  milliseconds held = {}) {
  Refusal refusal;
  for (const std::string& owner : owners) {
    Holder holder;
    holder.owner = owner;
    holder.limit = limit;
    holder.held = held;
    refusal.held_by.push_back(holder);
  }
  refusal.holders = owners.size();
  return {node, 1, {}, Answer(refusal)};
}

TEST_CASE("one more owner than a limit allows would have to meet the others on some server") {
  for (std::size_t nodes = 3; nodes <= 9; ++nodes) {
    for (std::int64_t limit = 1; limit <= 12; ++limit) {
      CAPTURE(nodes);
      CAPTURE(limit);
      const auto needed = votes_needed(nodes, Limit{limit});
      const auto owners = static_cast<std::size_t>(limit) + 1;
      // With room for `limit` owners on each server, this is the number of votes in all.
      CHECK(owners * needed > nodes * static_cast<std::size_t>(limit));
      CHECK(needed <= nodes);
      CHECK((needed - 1) * owners <= nodes * static_cast<std::size_t>(limit));
    }
    // A reader and a writer always share a server.
    CHECK(votes_needed(nodes, no_limit) + votes_needed(nodes, exclusive) > nodes);
  }
  CHECK(votes_needed(5, Limit{largest_limit}) == 5);
}

TEST_CASE("a node with an absurd fence does not change the fence of the majority") {
  QuorumHold hold(5, claim_of("me"));
  hold.on_reply(granted(0, (std::int64_t{1} << 53) - 1));
  for (std::size_t i = 1; i < 4; ++i) hold.on_reply(granted(i, 100 + static_cast<int>(i)));
  CHECK(hold.least_common_fence(BootClock::now()) == Fence{103});
}

TEST_CASE(
    "if fences are far apart, the client waits a while for the nodes that have not answered") {
  const auto now = BootClock::now();
  QuorumHold hold(3, claim_of("me"));
  hold.proposal = Fence{100};
  hold.fence_by = in_an_hour;
  for (NodeVote& vote : hold.node_votes) vote.awaited = true;
  hold.on_reply(granted(0, (std::int64_t{1} << 53) - 1));
  hold.on_reply(granted(1, 100));
  CHECK(hold.fence_may_be_found(now));
  CHECK_FALSE(hold.fence_may_be_found(in_an_hour));
  QuorumHold near(3, claim_of("me"));
  near.fence_by = in_an_hour;
  near.node_votes[2].awaited = true;
  near.on_reply(granted(0, 101));
  near.on_reply(granted(1, 100));
  CHECK_FALSE(near.fence_may_be_found(now));
  hold.on_reply(granted(2, 100));
  CHECK_FALSE(hold.fence_may_be_found(now));
  CHECK(hold.least_common_fence(now) == Fence{100});
}

TEST_CASE("a majority lasts until the first of its leases ends, and the longest majority counts") {
  QuorumHold hold(5, claim_of("me"));
  hold.fence = Fence{7};
  for (std::size_t i = 0; i < 5; ++i) {
    hold.on_reply(granted(i, 7, later(in_an_hour, std::chrono::seconds(i))));
  }
  CHECK(hold.lease(BootClock::now())->valid_until == later(in_an_hour, std::chrono::seconds(2)));
  const auto three_left = later(in_an_hour, std::chrono::seconds(1));
  CHECK(hold.lease(three_left)->valid_until == later(in_an_hour, std::chrono::seconds(2)));
  CHECK_FALSE(hold.lease(later(in_an_hour, std::chrono::seconds(2))));
}

TEST_CASE("the answers of a node that may have forgotten a lease do not count") {
  QuorumHold hold(3, claim_of("me"));
  hold.on_reply(granted(0, 5));
  NodeReply guarded = granted(1, 5);
  guarded.standing.quarantined_for = milliseconds(1000);
  hold.on_reply(guarded);
  CHECK(hold.holding(BootClock::now()) == 1);
  CHECK(hold.confirmed() == 1);
}

TEST_CASE("the client with the most votes keeps them, and one of two with equally many") {
  QuorumHold mine(5, claim_of("b"));
  mine.on_reply(granted(0, 1));
  mine.on_reply(granted(1, 1));
  mine.on_reply(refused(2, {"c"}));
  mine.on_reply(refused(3, {"c"}));
  mine.on_reply(refused(4, {"d"}));
  const VoteCount for_b = count_votes(mine, BootClock::now());
  CHECK_FALSE(for_b.decided);
  CHECK(for_b.leading);

  QuorumHold theirs(5, claim_of("c"));
  for (std::size_t i = 0; i < 2; ++i) theirs.on_reply(refused(i, {"b"}));
  for (std::size_t i = 2; i < 4; ++i) theirs.on_reply(granted(i, 1));
  theirs.on_reply(refused(4, {"d"}));
  CHECK_FALSE(count_votes(theirs, BootClock::now()).leading);
}

TEST_CASE("votes that an old holder may have on silent nodes count for it, but not in a race") {
  const auto against = [](milliseconds held) {
    QuorumHold hold(5, claim_of("me"));
    hold.on_reply(granted(0, 1));
    hold.on_reply(refused(1, {"other"}, exclusive, held));
    hold.on_reply(refused(2, {"other"}, exclusive, held));
    return hold;
  };
  QuorumHold hold = against(std::chrono::minutes(1));
  CHECK(count_votes(hold, BootClock::now()).decided);
  CHECK_FALSE(count_votes(against(milliseconds(5)), BootClock::now()).decided);
  hold.on_reply(granted(3, 1));
  hold.on_reply(refused(4, {"third"}));
  CHECK_FALSE(count_votes(hold, BootClock::now()).decided);
}

TEST_CASE("a semaphore is full when as many have it as its limit allows") {
  QuorumHold hold(5, claim_of("me", Limit{2}));
  for (std::size_t i = 0; i < 5; ++i) hold.on_reply(refused(i, {"a", "b"}, Limit{2}));
  CHECK(count_votes(hold, BootClock::now()).decided);
  for (std::size_t i = 0; i < 3; ++i) hold.on_reply(refused(i, {"a", "c"}, Limit{2}));
  CHECK_FALSE(count_votes(hold, BootClock::now()).decided);
}

TEST_CASE("holds in cooldown of one process fill a semaphore, too") {
  const auto decided = [](std::size_t left) {
    Refusal refusal;
    for (std::size_t i = 0; i < left; ++i) {
      Holder holder;
      holder.kept = true;
      holder.who.host = "h";
      holder.who.pid = 7;
      holder.limit = Limit{2};
      refusal.held_by.push_back(holder);
    }
    refusal.holders = left;
    QuorumHold hold(3, claim_of("me", Limit{2}));
    for (std::size_t i = 0; i < 3; ++i) hold.on_reply({i, 1, {}, Answer(refusal)});
    return count_votes(hold, BootClock::now()).decided;
  };
  CHECK(decided(2));
  CHECK_FALSE(decided(1));
}

TEST_CASE("a reader has no room beside owners of a semaphore, nor they beside a reader") {
  for (const auto& [mine, theirs] :
       {std::pair(no_limit, Limit{3}), std::pair(Limit{3}, no_limit)}) {
    QuorumHold hold(5, claim_of("me", mine));
    for (std::size_t i = 0; i < 4; ++i) hold.on_reply(refused(i, {"other"}, theirs));
    hold.on_reply(granted(4, 1));
    CHECK(count_votes(hold, BootClock::now()).decided);
  }
}

TEST_CASE("a semaphore's hold that another process renews takes the votes of its limit") {
  QuorumHold hold(5, claim_of("me"), false);
  for (std::size_t i = 0; i < 3; ++i) {
    const Lease lease{milliseconds(30'000), in_an_hour};
    hold.on_reply({i, 1, {}, Renewed{Grant{Fence{7}, lease, true, Limit{2}}}});
  }
  CHECK(hold.needed() == 4);
  CHECK_FALSE(hold.lease(BootClock::now()));
}

TEST_CASE("a waiter asks again when enough nodes have room") {
  QuorumHold hold(5, claim_of("me"));
  for (std::size_t i = 0; i < 5; ++i) {
    NodeReply heard = refused(i, {"other"});
    auto& refusal = std::get<Refusal>(std::get<Answer>(heard.response));
    refusal.ask_again_in = milliseconds(1000 * (5 - i));
    hold.on_reply(heard);
  }
  CHECK(merged_refusal(hold).ask_again_in == milliseconds(3000));
}

}  // namespace
}  // namespace dlock
