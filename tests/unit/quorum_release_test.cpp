// The result of QuorumStore for a release that most servers did not answer, and for an eviction
// that one of them refuses.

#include <doctest/doctest.h>

#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock::test {
namespace {

/// Three nodes that answer in the order of the requests.
class ThreeNodes : public NodeClients {
 public:
  std::size_t size() const override { return 3; }
  std::string name(std::size_t node) const override { return "m" + std::to_string(node); }
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
  void begin_anew() override {}

 private:
  virtual Response response(std::size_t node, const NodeRequest& request) const = 0;
  /// They are silent after this many requests.
  virtual std::uint64_t most_requests() const { return std::numeric_limits<std::uint64_t>::max(); }

  std::uint64_t requests_ = 0;
  std::deque<NodeReply> replies_;
};

/// The first node answers that it has no such hold, and the others are unreachable; if
/// `loses_an_answer`, the last one still gets the request.
class OnlyFirstAnswers final : public ThreeNodes {
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
class LastTakesNoWrites final : public ThreeNodes {
 public:
  bool has_sent_releases(std::size_t) const override { return true; }

 private:
  Response response(std::size_t node, const NodeRequest&) const override {
    if (node != 2) return std::vector<Holder>{};
    return Error(ErrorKind::unavailable, "NOREPLICAS Not enough good replicas");
  }
  /// Many more than the eviction needs.
  std::uint64_t most_requests() const override { return 60; }
};

}  // namespace

TEST_CASE("quorum: what is left of a hold on a server that takes no writes is held by nobody") {
  const CallOptions call_options{later(BootClock::now(), milliseconds(60'000))};
  for (const auto fence : {std::optional<Fence>(), std::optional(Fence{7})}) {
    QuorumStore store(std::make_unique<LastTakesNoWrites>());
    CHECK(store.evict({"k"}, {fence, {}}, call_options).empty());
  }
}

TEST_CASE("quorum: a release may be done where a server was sent it and did not answer") {
  CHECK(may_be_done(true));
  CHECK(!may_be_done(false));
}

}  // namespace dlock::test
