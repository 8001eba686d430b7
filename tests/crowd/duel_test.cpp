#include "duel.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <functional>

#include "support/skip.hpp"

namespace dlock::test {
namespace {

using Outcomes = std::vector<Duel::Outcome>;

/// Checks that the resource took no write of an old holder after one of the next holder.
void check_fenced(const Outcomes& outcomes) {
  std::size_t late = 0;
  for (const Duel::Outcome& outcome : outcomes) {
    CHECK(outcome.trouble == "");
    CHECK(outcome.late_taken == 0);
    if (outcome.late > 0) ++late;
  }
  MESSAGE(outcomes.size() << " runs, in " << late << " of them late writes, all refused");
}

/// Checks that no process of an old holder ran when the next was granted the lock.
void check_apart(const std::function<void(Duel&)>& story, Rules rules = {}) {
  rules.apart = true;
  const Outcomes outcomes = duels(story, rules);
  check_fenced(outcomes);
  std::vector<double> margins;
  for (const Duel::Outcome& outcome : outcomes) {
    if (!outcome.trouble.empty()) continue;
    const double ms = static_cast<double>(outcome.margin.count()) / 1e6;
    margins.push_back(ms);
    CHECK(ms > 0);
  }
  std::sort(margins.begin(), margins.end());
  if (!margins.empty()) {
    MESSAGE("ms from the last beat to the next grant: least " << margins.front() << ", median "
                                                              << margins[margins.size() / 2]);
  }
}

void stop_dlock(Duel& duel) { duel.first().stop(); }

Direction any_direction(Chance& chance) {
  return chance.up_to(1) == 0 ? Direction::requests : Direction::replies;
}

}  // namespace

TEST_CASE("the server stops for a while: the command never runs beside the next holder's") {
  check_apart([](Duel& duel) {
    duel.pause(0, 1.5);
    duel.arena().scene.server.stop();
    duel.pause(0.2, 2);
    duel.arena().scene.server.cont();
    duel.pause(0, 1);
    duel.end_first();
  });
}

TEST_CASE("the connection is a black hole: the command never runs beside the next holder's") {
  check_apart([](Duel& duel) {
    duel.pause(0, 1.5);
    duel.arena().proxy.black_hole(any_direction(duel.chance()));
    duel.first_loses();
  });
}

TEST_CASE("a daemon below a command that ignores TERM never runs beside the next holder's") {
  check_apart(
      [](Duel& duel) {
        duel.pause(0, 1.5);
        duel.arena().proxy.black_hole(any_direction(duel.chance()));
        duel.first_loses();
      },
      {.with_daemon = true});
}

TEST_CASE("only the command is stopped for longer than the ttl: the lock stays held") {
  check_apart([](Duel& duel) {
    duel.pause(0, 1.5);
    duel.signal_command(SIGSTOP);
    duel.pause(1.1, 2);
    duel.check_kept();
    duel.signal_command(SIGCONT);
    duel.pause(0, 0.5);
    duel.end_first();
  });
}

TEST_CASE("the hold is deleted or thrown out: the command ends, and what it writes is refused") {
  check_fenced(duels([](Duel& duel) {
    duel.pause(0, 1.5);
    if (duel.chance().up_to(1) == 0) {
      duel.arena().scene.server.command({"DEL", "dlock:{" + duel.key() + "}"});
    } else {
      duel.arena().scene.run({"release", "--force", "-k", duel.key()});
    }
    duel.first_loses();
  }));
}

TEST_CASE("only dlock is stopped for longer than the ttl: what its command writes is refused") {
  check_fenced(duels([](Duel& duel) {
    duel.pause(0, 1.5);
    stop_dlock(duel);
    duel.wait_for_second();
    duel.pause(0, 0.5);
    duel.first().signal(SIGCONT);
    duel.first_loses();
  }));
}

TEST_CASE("dlock and command are stopped, dlock wakes first: the command does not run again") {
  check_apart([](Duel& duel) {
    duel.pause(0, 1.5);
    stop_dlock(duel);
    duel.signal_command(SIGSTOP);
    duel.wait_for_second();
    duel.pause(0, 0.5);
    duel.first().signal(SIGCONT);
    duel.first_loses();
  });
}

TEST_CASE("dlock and command are stopped, the command wakes first: what it writes is refused") {
  check_fenced(duels([](Duel& duel) {
    duel.pause(0, 1.5);
    stop_dlock(duel);
    duel.signal_command(SIGSTOP);
    duel.wait_for_second();
    duel.pause(0, 0.5);
    duel.signal_command(SIGCONT);
    duel.first().signal(SIGCONT);
    duel.first_loses();
  }));
}

TEST_CASE(
    "the control group is frozen for longer than the ttl: what its command writes is refused") {
  if (skip_if(!Freezer::make(), "no control group can be made here")) return;
  check_fenced(duels(
      [](Duel& duel) {
        duel.pause(0, 1.5);
        duel.freezer().freeze();
        duel.wait_for_second();
        duel.pause(0, 0.5);
        duel.freezer().thaw();
        duel.first_loses();
      },
      {.in_freezer = true}));
}

}  // namespace dlock::test
