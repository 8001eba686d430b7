// Renewals of several holds in turn, with one far server of three.

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "quorum/quorum_store.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

/// The requests to the far node, and the time that the store waited for its replies.
struct FarThirdLog {
  std::set<LockKey> rejoined;
  BootClock::duration waited{0};
};

enum class Third { lacks, holds };

/// Two nodes that renew at once, and a third, far one that either lacks the hold or has it.
class FarThird final : public NodeClients {
 public:
  FarThird(milliseconds way, FarThirdLog& log, Third third = Third::lacks)
      : way_(way), log_(log), third_(third) {}

  std::size_t size() const override { return 3; }
  std::string name(std::size_t node) const override { return "m" + std::to_string(node); }
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
  bool has_sent_releases(std::size_t) const override { return true; }
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
  void begin_anew() override {}

 private:
  milliseconds way_;
  FarThirdLog& log_;
  Third third_;
  std::uint64_t requests_ = 0;
  std::deque<NodeReply> replies_;
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
