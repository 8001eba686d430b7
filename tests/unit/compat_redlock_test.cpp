// RedlockStore when servers refuse, are silent, or are late.

#include <doctest/doctest.h>
#include <sys/eventfd.h>

#include <functional>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/wait.hpp"
#include "compat/redlock_store.hpp"
#include "unit/rule_support.hpp"

namespace dlock::test {
namespace {

enum class Vote { yes, no, silent, misused, interrupted };

/// The behaviour of one server, and the requests that it got.
struct Voter {
  Vote vote = Vote::yes;
  milliseconds takes{0};
  int given_back = 0;
};

class VotingStore final : public Store {
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
  std::vector<Holder> evict(const LockKey&, std::optional<Fence>, const Who&,
                            const CallOptions&) override {
    return has_voted() ? std::vector<Holder>(1) : std::vector<Holder>();
  }
  std::vector<KeyState> inspect(const Query& query, const CallOptions&) override {
    KeyState state{query.keys.front()};
    if (has_voted()) state.holders.resize(1);
    return {state};
  }
  std::string name() const override { return "voter"; }

 private:
  bool has_voted() const {
    sleep_until(later(BootClock::now(), voter_.takes), -1);
    switch (voter_.vote) {
      case Vote::silent:
        throw_unavailable("no answer in time");
      case Vote::misused:
        throw_usage("it is a replica");
      case Vote::interrupted:
        throw_interrupted();
      case Vote::yes:
      case Vote::no:
        break;
    }
    return voter_.vote == Vote::yes;
  }

  Voter& voter_;
};

struct Three {
  explicit Three(Vote first, Vote second, Vote third) : voters{{first}, {second}, {third}} {
    std::vector<StorePtr> nodes;
    for (Voter& voter : voters) nodes.push_back(std::make_unique<VotingStore>(voter));
    store.emplace(std::move(nodes));
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
    return trouble([](Store& each) { each.acquire(claim("t", "o"), {}, {}); });
  }

  std::vector<Voter> voters;
  std::optional<RedlockStore> store;
};

using enum Vote;

}  // namespace

TEST_CASE("redlock: a renewal counts if a majority says so, and is none once a majority lost it") {
  const Claim held = claim("t", "o");
  CHECK(Three(yes, yes, no).store->renew(held, {}, {}).grant);
  CHECK(Three(yes, silent, yes).store->renew(held, {}, {}).grant);
  CHECK_FALSE(Three(yes, no, no).store->renew(held, {}, {}).grant);
  CHECK_FALSE(Three(no, silent, no).store->renew(held, {}, {}).grant);
}

TEST_CASE("redlock: whether it is still held is not known while too many servers are silent") {
  const auto renewed = [](Store& each) { each.renew(claim("t", "o"), {}, {}); };
  const auto released = [](Store& each) { each.release(claim("t", "o"), {}, {}); };
  const auto evicted = [](Store& each) { each.evict({"k"}, {}, {}, {}); };
  const auto inspected = [](Store& each) { each.inspect({{{"k"}}, {}}, {}); };
  for (const auto& ask : {std::function<void(Store&)>(renewed), {released}}) {
    CHECK(Three(yes, silent, no).trouble(ask) == ErrorKind::unavailable);
    CHECK(Three(yes, silent, silent).trouble(ask) == ErrorKind::unavailable);
    CHECK_FALSE(Three(no, silent, no).trouble(ask));
  }
  for (const auto& ask : {std::function<void(Store&)>(evicted), {inspected}}) {
    CHECK(Three(yes, silent, silent).trouble(ask) == ErrorKind::unavailable);
    CHECK_FALSE(Three(yes, silent, no).trouble(ask));
  }
}

TEST_CASE("redlock: votes that come when the lease is over are no lock, and are given back") {
  Three three(yes, yes, yes);
  for (Voter& voter : three.voters) voter.takes = milliseconds(60);
  Claim brief = claim("t", "o");
  brief.ttl = milliseconds(50);
  CHECK(std::holds_alternative<Refusal>(three.store->acquire(brief, {}, {})));
  for (const Voter& voter : three.voters) CHECK(voter.given_back == 1);
}

TEST_CASE("redlock: a vote that a late release may take back decides nothing") {
  Three three(silent, no, yes);
  const Claim again = claim("t", "o");
  CHECK(std::holds_alternative<Refusal>(three.store->acquire(again, {}, {})));
  three.voters[0].vote = yes;
  const Answer answer = three.store->acquire(again, {}, {});
  REQUIRE(std::holds_alternative<Refusal>(answer));
  CHECK(std::get<Refusal>(answer).why == Refusal::Reason::split);
  CHECK(std::get<Refusal>(answer).reason == "a server may yet carry out an earlier release");
  const auto renewed = [&](Store& each) { each.renew(again, {}, {}); };
  CHECK(three.trouble(renewed) == ErrorKind::unavailable);
  CHECK(std::holds_alternative<Grant>(three.store->acquire(claim("other", "o"), {}, {})));
}

TEST_CASE("redlock: of several troubles the one to be mended is told, and no lock is had") {
  CHECK(Three(silent, silent, yes).trouble_in_acquire() == ErrorKind::unavailable);
  CHECK(Three(silent, misused, silent).trouble_in_acquire() == ErrorKind::usage);
  CHECK(Three(misused, silent, silent).trouble_in_acquire() == ErrorKind::usage);
  CHECK(Three(yes, no, interrupted).trouble_in_acquire() == ErrorKind::interrupted);
  CHECK(Three(misused, silent, interrupted).trouble_in_acquire() == ErrorKind::interrupted);
  CHECK_FALSE(Three(yes, no, silent).trouble_in_acquire());
}

TEST_CASE("redlock: a waiter ends its pause when it is interrupted") {
  Three three(no, no, no);
  const Fd interrupt(eventfd(1, EFD_CLOEXEC));
  CHECK(three.store->sleep(claim("t", "o"), never, interrupt.get()).why ==
        Wake::Reason::interrupted);
  CHECK(three.store->sleep(claim("t", "o"), BootClock::now(), -1).why == Wake::Reason::due);
}

}  // namespace dlock::test
