#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "quorum/threaded_council.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

/// Answers a release after so long, unless it is interrupted, and everything else at once. It takes
/// a moment until the release is on its way.
class Slow final : public Member {
 public:
  Slow(milliseconds takes, std::atomic<bool>& sent, std::atomic<bool>& released)
      : takes_(takes), sent_(sent), released_(released) {}

  Released release(const LockKey&, const Token&, ReleaseMode, const Patience& patience) override {
    pollfd fds[] = {{patience.interrupt_fd, POLLIN, 0}};
    if (poll_until(fds, later(BootClock::now(), milliseconds(1))) > 0) {
      throw Error(Trouble::interrupted, "interrupted");
    }
    sent_ = true;
    patience.sent->raise();
    if (poll_until(fds, later(BootClock::now(), takes_)) > 0) {
      throw Error(Trouble::interrupted, "interrupted");
    }
    released_ = true;
    return Released::yes;
  }
  std::vector<KeyState> inspect(const Query&, const Patience&) override { return {}; }

  Answer acquire(const Claim&, const Ask&, const Patience&) override { return Refusal(); }
  Answer vote(const Claim&, const Ask&, Fence, const Patience&) override { return Refusal(); }
  Wake sleep(const Claim&, Deadline, int) override { return {}; }
  std::optional<Grant> renew(const LockKey&, const Token&, std::optional<milliseconds>,
                             const Patience&) override {
    return std::nullopt;
  }
  std::optional<Grant> renew_as(const LockKey&, const Token&, std::optional<milliseconds>, Fence,
                                const Patience&) override {
    return std::nullopt;
  }
  std::optional<Grant> rejoin(const Claim&, Fence, const Patience&) override {
    return std::nullopt;
  }
  std::vector<Holder> force_release(const LockKey&, std::optional<Fence>,
                                    const Patience&) override {
    return {};
  }
  bool needs_renewal(const Claim&) const override { return true; }
  LatchState open_latch(const LockKey&, const LatchTerms&, const Patience&) override { return {}; }
  std::optional<LatchState> arrive(const LockKey&, const ArrivalId&, const Patience&) override {
    return std::nullopt;
  }
  std::optional<LatchState> look_at_latch(const LockKey&, bool, const Patience&) override {
    return std::nullopt;
  }
  Wake::Why sleep_at_latch(const LockKey&, Deadline, int) override { return {}; }
  LatchState mend_latch(const LockKey&, const LatchTerms&, const std::vector<ArrivalId>&,
                        const Patience&) override {
    return {};
  }
  std::optional<LatchPart> read_latch(const LockKey&, std::size_t, bool, const Patience&) override {
    return std::nullopt;
  }
  std::string name() const override { return "slow"; }
  Standing standing() const override { return {}; }
  Fence seal(const LockKey&, Fence fence, const Patience&) override { return fence; }

 private:
  milliseconds takes_;
  std::atomic<bool>& sent_;
  std::atomic<bool>& released_;
};

constexpr milliseconds long_time{20'000};

struct Outcome {
  bool sent, released;
};

/// One member that takes so long for a release, and has answered before or not: how far it came by
/// the time the council was gone.
Outcome outcome(milliseconds takes, bool has_answered) {
  std::atomic<bool> sent = false, released = false;
  const auto open = [&] {
    std::vector<std::unique_ptr<Member>> members;
    members.push_back(std::make_unique<Slow>(takes, sent, released));
    return members;
  };
  {
    ThreadedCouncil council(open);
    const Deadline deadline = later(BootClock::now(), long_time);
    if (has_answered) {
      council.ask(0, Inspection{}, deadline);
      REQUIRE(council.hear(deadline, -1));
    }
    council.ask(0, Release{LockKey{"k"}, Token{"t"}, ReleaseMode::normal}, deadline);
  }
  return {sent, released};
}

}  // namespace

TEST_CASE(
    "council: who leaves waits a moment for a member that answers to release, and no longer") {
  // A moment is soon over on a machine that does much else.
  CHECK(eventually([] { return outcome(milliseconds(2), true).released; }));
  const auto begun = BootClock::now();
  CHECK_FALSE(outcome(long_time / 2, true).released);
  CHECK_FALSE(outcome(long_time / 2, false).released);
  CHECK(BootClock::now() - begun < long_time / 2);
}

TEST_CASE("council: who leaves sees a release on its way to a member that never answered") {
  CHECK(eventually([] { return outcome(long_time, false).sent; }));
}

}  // namespace dlock::test
