#include "simulator/plan.hpp"

#include <algorithm>
#include <iterator>

namespace dlock::sim {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

/// If one clock gains this and another loses it, they drift apart by just under 1 %, which
/// deadlines allow for.
constexpr std::int64_t most_ppm = 4900;

void draw_work(Plan& plan, Chance& chance) {
  plan.nodes = chance.one_in(3) ? 5 : chance.one_in(12) ? 4 : 3;
  plan.clients = 2 + chance.up_to(chance.one_in(4) ? 3 : 1);
  plan.rounds = 1 + chance.up_to(1);
  const milliseconds longest_ttl{chance.one_in(8) ? 60'000 : 4'000};
  plan.ttl = chance.over_scales(milliseconds(100), longest_ttl);
  plan.limits = {1};
  if (chance.one_in(6)) plan.limits = {1, 0};
  if (chance.one_in(12)) plan.limits = {2};
  if (chance.one_in(20)) plan.limits = {1, 2};
  if (chance.one_in(12)) {
    // On five nodes, a reader and two semaphore owners need not all meet on any node.
    plan.limits = {2, 0, 0};
    plan.nodes = 5;
    plan.clients = std::max<std::size_t>(plan.clients, 3);
  }
  // A re-entered hold has the fence of its outer hold; fences of others beside it may be larger.
  plan.same_owner = plan.limits.size() == 1 && plan.limits[0] == 1 && chance.one_in(4);
  plan.longest_hold = chance.over_scales(plan.ttl / 20, plan.ttl * 3);
  plan.longest_thought = chance.over_scales(milliseconds(0), plan.ttl);
}

/// After a node has lost its memory, no proposal may be smaller than the fences that it granted
/// before. Its quarantine lasts twice as long as a proposal may be off, which leaves some room for
/// wrong clocks.
void draw_clocks(Plan& plan, Chance& chance) {
  plan.rate_ppm = chance.one_in(3) ? 0 : most_ppm;
  plan.wild_clocks = chance.one_in(5);
  if (plan.wild_clocks) {
    plan.nodes_apart = plan.clients_ahead = plan.clients_behind = hours(1);
    return;
  }
  plan.nodes_apart = chance.one_in(2) ? Span(0) : seconds(4);
  const Span off[] = {milliseconds(1), milliseconds(1), seconds(25), hours(1), hours(72)};
  plan.clients_behind = plan.clients_ahead = off[chance.up_to(std::size(off) - 1)];
}

void draw_network(Plan& plan, Chance& chance) {
  plan.least_delay = chance.over_scales(Span(microseconds(20)), Span(plan.ttl) / 200);
  if (chance.one_in(4)) plan.further_away = Span(plan.ttl) / 60;
  plan.most_jitter = chance.over_scales(Span(microseconds(10)), Span(plan.ttl) / 4);
  const auto maybe = [&](std::size_t least, std::size_t most) {
    return chance.one_in(2) ? 0 : least + chance.up_to(most - least);
  };
  plan.lost_one_in = maybe(10, 200);
  plan.reset_one_in = maybe(10, 200);
  plan.doubled_one_in = maybe(3, 50);
  plan.rest_one_in = maybe(20, 400);
  plan.longest_rest = chance.over_scales(Span(milliseconds(1)), Span(plan.ttl) * 2);
}

void draw_faults(Plan& plan, Chance& chance) {
  for (std::size_t kind = 0; kind < kinds_of_faults; ++kind) {
    if (chance.one_in(2)) plan.faults.push_back(static_cast<Fault>(kind));
  }
  plan.trouble = Span(plan.ttl) * static_cast<std::int64_t>(1 + chance.up_to(3));
  plan.between_faults = plan.trouble / static_cast<std::int64_t>(1 + chance.up_to(12));
  plan.longest_fault = chance.over_scales(Span(plan.ttl) / 10, Span(plan.ttl) * 3);
  plan.fresh_nodes = chance.one_in(15);
  plan.always_fsync = chance.one_in(3);
}

void make_orderly(Plan& plan) {
  plan.orderly = true;
  plan.limits = {1};
  plan.clients = std::max<std::size_t>(plan.clients, 3);
  plan.same_owner = plan.fresh_nodes = plan.wild_clocks = false;
  plan.lost_one_in = plan.reset_one_in = plan.doubled_one_in = plan.rest_one_in = 0;
  plan.faults.clear();
}

}  // namespace

Span Plan::order_unsure(Span elapsed) const {
  constexpr int messages = 20, million = 1'000'000;
  const Span way = least_delay + further_away + most_jitter;
  return messages * way + 2 * nodes_apart + elapsed * 4 * rate_ppm / million;
}

Plan draw_plan(Chance& chance) {
  Plan plan;
  draw_work(plan, chance);
  draw_clocks(plan, chance);
  draw_network(plan, chance);
  draw_faults(plan, chance);
  if (!plan.wild_clocks && chance.one_in(8)) make_orderly(plan);
  return plan;
}

}  // namespace dlock::sim
