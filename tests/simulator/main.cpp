// Runs the quorum store, the acquire loop and the renewal of leases over virtual nodes, clocks
// and networks, schedule after schedule, until a promise is broken. A number determines a schedule,
// on any machine. The number of the failed schedule is printed, to run it again.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
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

/// The longest time from the healing until a client holds the lock: the quarantine of all nodes,
/// a lease, and the delay by dead waiters in the queues.
Span longest_until_had(const Plan& plan) {
  // A clock that was set back prolongs a quarantine.
  const Span of_clocks = plan.wild_clocks ? Span(std::chrono::hours(3)) : Span(0);
  return seconds(120 + 80 + 30) + 4 * Span(plan.ttl) + of_clocks;
}

std::string text_of(const Plan& plan) {
  return std::to_string(plan.nodes) + " nodes, " + std::to_string(plan.clients) + " clients, ttl " +
         std::to_string(plan.ttl.count()) + " ms" + (plan.wild_clocks ? ", wild clocks" : "") +
         (plan.always_fsync ? ", always fsync" : "") + ", trouble for " +
         sim::text_of(plan.trouble);
}

/// The outcome of one schedule.
struct Outcome {
  std::optional<std::string> violation;
  std::deque<std::string> story;  ///< its last lines, if it was asked for
};

/// Runs the schedule that `seed` decides, from its beginning to its end.
class Schedule {
 public:
  Schedule(std::uint64_t seed, bool with_story, Statistics& statistics)
      : world_(seed, with_story, statistics),
        plan_(draw_plan(world_.chance())),
        network_(plan_, plan_.clients),
        checker_(plan_, servers_),
        faults_(plan_, network_, servers_, clients_) {}

  Outcome run() {
    Chance& chance = world_.chance();
    world_.tell([&] { return text_of(plan_); });
    for (std::size_t i = 0; i < plan_.nodes; ++i) {
      const auto clock = draw_clock(chance, plan_, plan_.nodes_apart, plan_.nodes_apart);
      servers_.emplace_back(i, clock, plan_.always_fsync, plan_.fresh_nodes);
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
    const auto holds = static_cast<std::int64_t>(2 * plan_.clients);
    until(healed + longest_until_had(plan_) + holds * (Span(plan_.longest_hold) + seconds(30)));
    if (!world_.violation() && !all_done()) {
      world_.violated("all is well again, and somebody who waits does not get the lock");
    }
    // Votes that were left behind show later.
    const Instant end = world_.now() + Span(plan_.ttl);
    while (!world_.violation() && world_.step(end)) {
    }
    world_.count("schedules");
    for (const auto& client : clients_) client->process().kill();
    return {world_.violation(), world_.story()};
  }

 private:
  void until(Instant end) {
    while (!world_.violation() && !all_done() && world_.step(end)) {
    }
  }
  bool all_done() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->done(); });
  }
  bool somebody_had_it() const {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->has_held_since_healing(); });
  }

  World world_;
  Plan plan_;
  Network network_;
  std::vector<Server> servers_;
  Checker checker_;
  std::vector<std::unique_ptr<Client>> clients_;
  Faults faults_;
};

}  // namespace
}  // namespace dlock::sim

namespace {

using namespace dlock::sim;

constexpr char usage[] =
    "simulator --schedules N [--seed S]   runs N schedules, the first of them with seed S\n"
    "simulator --seed S                   runs one, and tells its story\n"
    "simulator --schedules N --weakened   as above; a violation is what is expected\n";

/// The seed of a schedule in a series. The first one is `first` itself, so that any schedule can be
/// repeated on its own.
std::uint64_t seed_of(std::uint64_t first, std::uint64_t index) {
  return index == 0 ? first : Chance(first + index).next();
}

/// Prints the last `lines` of the story. Returns whether all was well.
bool print_story(std::uint64_t seed, std::size_t lines) {
  Statistics unused;
  const Outcome outcome = Schedule(seed, true, unused).run();
  const std::size_t left_out = outcome.story.size() - std::min(outcome.story.size(), lines);
  for (std::size_t i = left_out; i < outcome.story.size(); ++i) {
    std::printf("%s\n", outcome.story[i].c_str());
  }
  if (outcome.violation) {
    std::printf("\nviolated with seed %llu: %s\n", static_cast<unsigned long long>(seed),
                outcome.violation->c_str());
  }
  return !outcome.violation;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 1, schedules = 0;
  bool weakened = false;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&] { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (std::strcmp(argv[i], "--seed") == 0) {
      seed = number();
    } else if (std::strcmp(argv[i], "--schedules") == 0) {
      schedules = number();
    } else if (std::strcmp(argv[i], "--weakened") == 0) {
      weakened = true;
    } else {
      std::fputs(usage, stderr);
      return 64;
    }
  }
  if (schedules == 0) {
    return print_story(seed, SIZE_MAX) ? 0 : 1;
  }
  Statistics statistics;
  for (std::uint64_t i = 0; i < schedules; ++i) {
    const std::uint64_t one = seed_of(seed, i);
    const Outcome outcome = Schedule(one, false, statistics).run();
    if (!outcome.violation) continue;
    if (weakened) {
      std::printf("caught by schedule %llu: %s\n", static_cast<unsigned long long>(i + 1),
                  outcome.violation->c_str());
      return 0;
    }
    print_story(one, 200);
    std::printf("again: simulator --seed %llu\n", static_cast<unsigned long long>(one));
    return 1;
  }
  for (const auto& [what, times] : statistics) {
    std::printf("%12llu  %s\n", static_cast<unsigned long long>(times), std::string(what).c_str());
  }
  return weakened ? 1 : 0;
}
