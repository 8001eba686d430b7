// A QuorumStore without fences when servers refuse, cannot be reached, or are late.

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "quorum/node_threads.hpp"
#include "quorum/quorum_store.hpp"
#include "unit/rule_support.hpp"

namespace dlock::test {
namespace {

enum class Voting { yes, no, absent, misused };

/// The behaviour of one server, and the requests that it got.
struct Voter {
  Voting vote = Voting::yes;
  milliseconds takes{0};
  std::atomic<int> given_back = 0;
};

class VotingStore final : public Member {
 public:
  explicit VotingStore(Voter& voter) : voter_(voter) {}

  Answer acquire(const Claim& claim, const Ask&, const CallOptions&) override {
    const Deadline sent = BootClock::now();
    if (!has_voted()) return Refusal{};
    return Grant{{}, {claim.ttl, valid_until(sent, claim.ttl)}};
  }
  Wake sleep(const Claim&, Deadline, int) override { return {}; }
  Renewed renew(const Claim& claim, const RenewalOptions&, const CallOptions&) override {
    const Deadline sent = BootClock::now();
    if (!has_voted()) return {};
    return {Grant{{}, {claim.ttl, valid_until(sent, claim.ttl)}}};
  }
  ReleaseResult release(const Claim&, const ReleaseOptions&, const CallOptions&) override {
    ++voter_.given_back;
    return {has_voted() ? Released::yes : Released::not_held};
  }
  std::vector<Holder> evict(const LockKey&, const Eviction&, const CallOptions&) override {
    return has_voted() ? std::vector<Holder>(1) : std::vector<Holder>();
  }
  std::vector<KeyState> inspect(const Query& query, const CallOptions&) override {
    KeyState state{query.keys.front()};
    if (has_voted()) state.holders.resize(1);
    return {state};
  }
  std::string name() const override { return "voter"; }
  std::optional<Grant> rejoin(const Claim&, Fence, const CallOptions&) override { return {}; }
  Standing standing() const override { return {}; }
  Fence record_max(const LockKey&, Fence fence, const CallOptions&) override { return fence; }

 private:
  bool has_voted() const {
    sleep_until(later(BootClock::now(), voter_.takes), -1);
    switch (voter_.vote) {
      case Voting::absent:
        throw_unavailable("cannot connect");
      case Voting::misused:
        throw_usage("it is a replica");
      case Voting::yes:
      case Voting::no:
        break;
    }
    return voter_.vote == Voting::yes;
  }

  Voter& voter_;
};

CallOptions soon() { return {later(BootClock::now(), milliseconds(20'000)), -1}; }

struct Three {
  explicit Three(Voting first, Voting second, Voting third) : voters{{first}, {second}, {third}} {
    store.emplace(std::make_unique<ThreadedNodeClients>([this] {
      std::vector<std::unique_ptr<Member>> nodes;
      for (Voter& voter : voters) nodes.push_back(std::make_unique<VotingStore>(voter));
      return nodes;
    }));
  }
  /// The kind of the error of `ask`; nothing if it succeeds.
  std::optional<ErrorKind> trouble(const std::function<void(Store&)>& ask) {
    try {
      ask(*store);
    } catch (const Error& error) {
      return error.kind();
    }
    return std::nullopt;
  }
  std::optional<ErrorKind> trouble_in_acquire() {
    return trouble([](Store& each) { each.acquire(claim("t", "o"), {}, soon()); });
  }

  Voter voters[3];
  std::optional<QuorumStore> store;
};

using enum Voting;

}  // namespace

TEST_CASE("redlock: a renewal counts if a majority says so, and is none once a majority lost it") {
  const Claim held = claim("t", "o");
  const RenewalOptions granted{.granted = Fence{}};
  CHECK(Three(yes, yes, no).store->renew(held, granted, soon()).grant);
  CHECK(Three(yes, absent, yes).store->renew(held, granted, soon()).grant);
  CHECK_FALSE(Three(yes, no, no).store->renew(held, granted, soon()).grant);
}

TEST_CASE("redlock: whether it is still held is not known while too many servers are silent") {
  const auto renewed = [](Store& each) {
    each.renew(claim("t", "o"), {.granted = Fence{}}, soon());
  };
  const auto released = [](Store& each) { each.release(claim("t", "o"), {}, soon()); };
  const auto evicted = [](Store& each) { each.evict({"k"}, {{}, {}}, soon()); };
  const auto inspected = [](Store& each) { each.inspect({{{"k"}}, {}}, soon()); };
  CHECK(Three(yes, absent, no).trouble(renewed) == ErrorKind::unavailable);
  CHECK(Three(yes, absent, absent).trouble(renewed) == ErrorKind::unavailable);
  CHECK(Three(yes, absent, absent).trouble(released) == ErrorKind::unavailable);
  CHECK_FALSE(Three(no, absent, no).trouble(released));
  for (const auto& ask : {std::function<void(Store&)>(evicted), {inspected}}) {
    CHECK(Three(yes, absent, absent).trouble(ask) == ErrorKind::unavailable);
    CHECK_FALSE(Three(yes, absent, no).trouble(ask));
  }
}

TEST_CASE("redlock: votes that come when the lease is over are no lock, and are given back") {
  Three three(yes, yes, yes);
  for (Voter& voter : three.voters) voter.takes = milliseconds(60);
  Claim brief = claim("t", "o");
  brief.ttl = milliseconds(50);
  CHECK(std::holds_alternative<Refusal>(three.store->acquire(brief, {}, soon())));
  three.store.reset();
  for (const Voter& voter : three.voters) CHECK(voter.given_back == 1);
}

TEST_CASE("redlock: of several troubles the one to be mended is told, and no lock is had") {
  CHECK(Three(absent, absent, yes).trouble_in_acquire() == ErrorKind::unavailable);
  CHECK(Three(absent, misused, absent).trouble_in_acquire() == ErrorKind::usage);
  CHECK(Three(misused, absent, absent).trouble_in_acquire() == ErrorKind::usage);
  CHECK_FALSE(Three(yes, no, absent).trouble_in_acquire());
}

}  // namespace dlock::test
