#include "simulator/schedule.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "simulator/client.hpp"
#include "simulator/faults.hpp"

namespace dlock::sim {
namespace {

using std::chrono::seconds;

MachineClock draw_clock(Chance& chance, const Plan& plan, Span behind, Span ahead) {
  const auto rate =
      static_cast<std::int64_t>(chance.up_to(static_cast<std::size_t>(2 * plan.rate_ppm)));
  // Mostly the largest error, with which the margins are smallest.
  const auto extreme = chance.one_in(2) ? plan.rate_ppm : -plan.rate_ppm;
  return MachineClock(chance.one_in(3) ? rate - plan.rate_ppm : extreme,
                      chance.between(-behind, ahead));
}

/// The longest time from the healing until a client holds the lock: the quarantine of all members,
/// a lease, and the delay by dead waiters in the queues.
Span longest_until_had(const Plan& plan) {
  // A clock that was set back prolongs a quarantine.
  const Span of_clocks = plan.wild_clocks ? Span(std::chrono::hours(3)) : Span(0);
  return seconds(120 + 80 + 30) + 4 * Span(plan.ttl) + of_clocks;
}

std::string text_of(const Plan& plan) {
  return std::to_string(plan.members) + " members, " + std::to_string(plan.clients) +
         " clients, ttl " + std::to_string(plan.ttl.count()) + " ms" +
         (plan.wild_clocks ? ", wild clocks" : "") + (plan.always_fsync ? ", always fsync" : "") +
         ", trouble for " + sim::text_of(plan.trouble);
}

/// Runs a schedule from its beginning to its end.
class Schedule {
 public:
  Schedule(std::uint64_t seed, bool with_story, Statistics& statistics)
      : world_(seed, with_story, statistics),
        plan_(draw_plan(world_.chance())),
        network_(plan_, plan_.clients),
        checker_(plan_, servers_),
        faults_(plan_, network_, servers_, clients_) {}

  Outcome run();

 private:
  void until(Instant end);
  bool all_done() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->done(); });
  }
  bool somebody_had_it() const {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->has_had_it_since_healing(); });
  }

  World world_;
  Plan plan_;
  Network network_;
  std::vector<Server> servers_;
  Checker checker_;
  std::vector<std::unique_ptr<Client>> clients_;
  Faults faults_;
};

void Schedule::until(Instant end) {
  while (!world_.violation() && !all_done() && world_.step(end)) {
  }
}

Outcome Schedule::run() {
  Chance& chance = world_.chance();
  world_.tell([&] { return text_of(plan_); });
  for (std::size_t i = 0; i < plan_.members; ++i) {
    const auto clock = draw_clock(chance, plan_, plan_.members_apart, plan_.members_apart);
    servers_.emplace_back(i, clock, plan_.always_fsync, plan_.fresh_members);
  }
  for (std::size_t i = 0; i < plan_.clients; ++i) {
    const auto clock = draw_clock(chance, plan_, plan_.clients_behind, plan_.clients_ahead);
    clients_.push_back(std::make_unique<Client>(i, plan_, clock, network_, servers_, checker_));
    clients_.back()->start();
  }
  faults_.begin();
  until(Instant(plan_.trouble));
  faults_.heal();
  const Instant healed = world_.now();
  until(healed + longest_until_had(plan_));
  if (!world_.violation() && !somebody_had_it()) {
    world_.violated("all is well again, and nobody gets the lock");
  }
  const auto quorum_holds = static_cast<std::int64_t>(2 * plan_.clients);
  until(healed + longest_until_had(plan_) +
        quorum_holds * (Span(plan_.longest_hold) + seconds(30)));
  if (!world_.violation() && !all_done()) {
    world_.violated("all is well again, and somebody who waits does not get the lock");
  }
  // Votes that were left behind show later.
  const Instant end = world_.now() + Span(plan_.ttl);
  while (!world_.violation() && world_.step(end)) {
  }
  ++world_.statistics().schedules;
  for (const auto& client : clients_) client->process().kill();
  return {world_.violation(), world_.story()};
}

}  // namespace

Outcome run_schedule(std::uint64_t seed, bool with_story, Statistics& statistics) {
  return Schedule(seed, with_story, statistics).run();
}

}  // namespace dlock::sim
