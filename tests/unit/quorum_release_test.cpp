// What QuorumStore tells of a release that most servers did not answer, and of an eviction that one
// of them refuses.

#include <doctest/doctest.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock::test {
namespace {

/// Three members of which the first answers that it has no such hold, and the others cannot be
/// reached; to the last the request is sent for all that where `loses_an_answer`.
class OnlyFirstAnswers final : public NodeClients {
 public:
  explicit OnlyFirstAnswers(bool loses_an_answer) : loses_an_answer_(loses_an_answer) {}

  std::size_t size() const override { return 3; }
  std::string name(std::size_t member) const override { return "m" + std::to_string(member); }
  std::uint64_t ask(std::size_t member, NodeRequest, Deadline) override {
    NodeReply reply{member, ++requests_, {}, ReleaseResult{Released::not_held}};
    if (member > 0) reply.response = Error(ErrorKind::unavailable, "connection refused");
    replies_.push_back(std::move(reply));
    return requests_;
  }
  bool has_sent_releases(std::size_t member) const override {
    return member == 0 || (member == 2 && loses_an_answer_);
  }
  std::optional<NodeReply> hear(Deadline, int) override {
    if (replies_.empty()) return std::nullopt;
    NodeReply first = std::move(replies_.front());
    replies_.pop_front();
    return first;
  }
  void begin_anew() override {}

 private:
  bool loses_an_answer_;
  std::uint64_t requests_ = 0;
  std::deque<NodeReply> replies_;
};

bool may_be_done(bool loses_an_answer) {
  QuorumStore store(std::make_unique<OnlyFirstAnswers>(loses_an_answer));
  Event sent;
  const CallOptions call_options{later(BootClock::now(), milliseconds(60'000)), -1, &sent};
  CHECK_THROWS_AS(store.release(claim_named({"k"}, {"t"}), {}, call_options), Error);
  return sent.raised();
}

/// Three members of which the last lists a hold that the others have not, and refuses to evict it.
/// All are silent once they were asked more often than that takes.
class LastTakesNoWrites final : public NodeClients {
 public:
  static constexpr std::uint64_t most_requests = 60;

  std::size_t size() const override { return 3; }
  std::string name(std::size_t member) const override { return "m" + std::to_string(member); }
  std::uint64_t ask(std::size_t member, NodeRequest request, Deadline) override {
    ++requests_;
    std::vector<Holder> holders;
    if (member == 2) holders.push_back(left_over());
    NodeReply reply{member, requests_, {}, holders};
    if (member == 2 && std::holds_alternative<Eviction>(request)) {
      reply.response = Error(ErrorKind::unavailable, "NOREPLICAS Not enough good replicas");
    }
    if (requests_ <= most_requests) replies_.push_back(std::move(reply));
    return requests_;
  }
  bool has_sent_releases(std::size_t) const override { return true; }
  std::optional<NodeReply> hear(Deadline, int) override {
    if (replies_.empty()) return std::nullopt;
    NodeReply first = std::move(replies_.front());
    replies_.pop_front();
    return first;
  }
  void begin_anew() override {}

 private:
  static Holder left_over() {
    Holder holder;
    holder.owner = "o";
    holder.fence = Fence{7};
    return holder;
  }

  std::uint64_t requests_ = 0;
  std::deque<NodeReply> replies_;
};

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

}  // namespace dlock::test
