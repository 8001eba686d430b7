// QuorumStore: a release that most servers did not answer, an eviction that one of them refuses,
// and renewals of several holds in turn with one far server of three.

#include "quorum/quorum_store.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

/// Three nodes.
class ThreeNodes : public NodeClients {
 public:
  std::size_t size() const override { return 3; }
  std::string name(std::size_t node) const override { return "m" + std::to_string(node); }
  bool has_sent_releases(std::size_t) const override { return true; }
  void begin_anew() override {}

 protected:
  std::uint64_t requests_ = 0;
  std::deque<NodeReply> replies_;  ///< in the order of the requests
};

/// They answer at once.
class PromptNodes : public ThreeNodes {
 public:
  std::uint64_t ask(std::size_t node, NodeRequest request, Deadline) override {
    ++requests_;
    if (requests_ <= most_requests()) {
      replies_.push_back({node, requests_, {}, response(node, request)});
    }
    return requests_;
  }
  std::optional<NodeReply> hear(Deadline, int) override {
    if (replies_.empty()) return std::nullopt;
    NodeReply first = std::move(replies_.front());
    replies_.pop_front();
    return first;
  }

 private:
  virtual Response response(std::size_t node, const NodeRequest& request) const = 0;
  /// They are silent after this many requests.
  virtual std::uint64_t most_requests() const { return std::numeric_limits<std::uint64_t>::max(); }
};

/// The first node answers that it has no such hold, and the others are unreachable; if
/// `loses_an_answer`, the last one still gets the request.
class OnlyFirstAnswers final : public PromptNodes {
 public:
  explicit OnlyFirstAnswers(bool loses_an_answer) : loses_an_answer_(loses_an_answer) {}

  bool has_sent_releases(std::size_t node) const override {
    return node == 0 || (node == 2 && loses_an_answer_);
  }

 private:
  Response response(std::size_t node, const NodeRequest&) const override {
    if (node > 0) return Error(ErrorKind::unavailable, "connection refused");
    return ReleaseResult{Released::not_held};
  }

  bool loses_an_answer_;
};

bool may_be_done(bool loses_an_answer) {
  QuorumStore store(std::make_unique<OnlyFirstAnswers>(loses_an_answer));
  Event sent;
  const CallOptions call_options{later(BootClock::now(), milliseconds(60'000)), -1, &sent};
  CHECK_THROWS_AS(store.release(claim_named({"k"}, {"t"}), {}, call_options), Error);
  return sent.raised();
}

/// The last node has a hold that the others do not have, and refuses to evict it.
class LastTakesNoWrites final : public PromptNodes {
  Response response(std::size_t node, const NodeRequest&) const override {
    if (node != 2) return std::vector<Holder>{};
    return Error(ErrorKind::unavailable, "NOREPLICAS Not enough good replicas");
  }
  /// Many more than the eviction needs.
  std::uint64_t most_requests() const override { return 60; }
};

/// The requests to the far node, and the time that the store waited for its replies.
struct FarThirdLog {
  std::set<LockKey> rejoined;
  BootClock::duration waited{0};
};

enum class Third { lacks, holds };

/// Two nodes that renew at once, and a third, far one that either lacks the hold or has it.
class FarThird final : public ThreeNodes {
 public:
  FarThird(milliseconds way, FarThirdLog& log, Third third = Third::lacks)
      : way_(way), log_(log), third_(third) {}

  std::uint64_t ask(std::size_t node, NodeRequest request, Deadline) override {
    constexpr milliseconds ttl{60'000};
    const auto now = BootClock::now();
    NodeReply reply{node, ++requests_, {}, Renewed{}};
    const auto* rejoining = std::get_if<Rejoining>(&request);
    if (rejoining != nullptr) log_.rejoined.insert(rejoining->claim.key);
    if (node < 2 || rejoining != nullptr || third_ == Third::holds) {
      reply.response = Renewed{Grant{Fence{1}, Lease{ttl, later(now, ttl)}}};
    }
    if (node < 2) {
      replies_.push_back(std::move(reply));
    } else {
      far_reply_ = {later(now, way_), std::move(reply)};
    }
    return requests_;
  }
  std::optional<NodeReply> hear(Deadline until, int) override {
    if (!replies_.empty()) {
      NodeReply first = std::move(replies_.front());
      replies_.pop_front();
      return first;
    }
    if (!far_reply_) return std::nullopt;
    const auto now = BootClock::now();
    const auto end = std::min(until, far_reply_->first);
    if (now < end) {
      log_.waited += end - now;
      poll_until({}, end);
    }
    if (BootClock::now() < far_reply_->first) return std::nullopt;
    return std::exchange(far_reply_, std::nullopt)->second;
  }

 private:
  milliseconds way_;
  FarThirdLog& log_;
  Third third_;
  std::optional<std::pair<Deadline, NodeReply>> far_reply_;
};

std::vector<Claim> claims_to_renew(int count) {
  std::vector<Claim> claims;
  for (int i = 0; i < count; ++i) {
    claims.push_back(claim_named({"k" + std::to_string(i)}, {"t"}));
    claims.back().ttl = milliseconds(60'000);
  }
  return claims;
}

void renew_each(QuorumStore& store, const std::vector<Claim>& claims, milliseconds request_time) {
  for (const Claim& claim : claims) {
    const CallOptions call_options{later(BootClock::now(), request_time), -1};
    CHECK(store.renew(claim, {.granted = Fence{1}}, call_options).grant);
  }
}

}  // namespace

TEST_CASE("quorum: what is left of a hold on a server that takes no writes is held by nobody") {
  const CallOptions call_options{later(BootClock::now(), milliseconds(60'000))};
  for (const auto fence : {std::optional<Fence>(), std::optional(Fence{7})}) {
    QuorumStore store(std::make_unique<LastTakesNoWrites>());
    CHECK(store.evict({"k"}, fence, {}, call_options).empty());
  }
}

TEST_CASE("quorum: a release may be done where a server was sent it and did not answer") {
  CHECK(may_be_done(true));
  CHECK(!may_be_done(false));
}

TEST_CASE("quorum: a far server delays the renewals of twelve holds no longer than those of two") {
  constexpr milliseconds request_time{500};  // for a ttl of 3 s
  FarThirdLog log;
  QuorumStore store(std::make_unique<FarThird>(milliseconds(240), log));
  const auto claims = claims_to_renew(12);
  const auto begun = BootClock::now();
  for (int i = 0; i < 3; ++i) renew_each(store, claims, request_time);
  // If a busy machine takes long for this, the renewals may wait again.
  const auto taken = BootClock::now() - begun;
  CHECK(log.waited <= request_time / 2 + taken / 3);
}

TEST_CASE("quorum: of a far server whose answers are overtaken nobody says that it lacks a hold") {
  constexpr milliseconds request_time{500};
  FarThirdLog log;
  QuorumStore store(std::make_unique<FarThird>(milliseconds(240), log, Third::holds));
  const auto claims = claims_to_renew(12);
  std::size_t fewest = 3;
  for (int round = 0; round < 4; ++round) {
    for (const Claim& claim : claims) {
      const CallOptions call_options{later(BootClock::now(), request_time), -1};
      const Renewed renewed = store.renew(claim, {.granted = Fence{1}}, call_options);
      REQUIRE(renewed.grant);
      if (renewed.grant->margin) fewest = std::min(fewest, renewed.grant->margin->held);
    }
  }
  CHECK(fewest == 3);
}

TEST_CASE("quorum: each of several holds gets back in its turn what a far server lacked of it") {
  constexpr milliseconds request_time{40};
  FarThirdLog log;
  QuorumStore store(std::make_unique<FarThird>(milliseconds(15), log));
  const auto claims = claims_to_renew(6);
  CHECK(eventually([&] {
    renew_each(store, claims, request_time);
    // In the next round, the renewals may wait again.
    poll_until({}, later(BootClock::now(), 2 * request_time));
    return log.rejoined.size() == claims.size();
  }));
}

}  // namespace dlock::test
