#include "storm.hpp"

#include <algorithm>
#include <numeric>
#include <thread>

#include "client.hpp"

namespace dlock::test {
namespace {

/// The quarantine of a server that lost its memory, and a little more.
constexpr std::chrono::seconds guarded{122};

struct Kind {
  Harm harm;
  const char* name;
};

constexpr Kind kinds[] = {{Harm::killed, "killed"},     {Harm::frozen, "frozen"},
                          {Harm::deaf, "deaf"},         {Harm::mute, "mute"},
                          {Harm::refusing, "refusing"}, {Harm::slow, "slow"},
                          {Harm::late, "late"},         {Harm::unanswered, "unanswered"},
                          {Harm::doubled, "doubled"},   {Harm::clock, "clock"}};

Direction any_direction(Chance& chance) {
  return chance.once_in(2) ? Direction::requests : Direction::replies;
}

}  // namespace

Storm::Storm(const Fleet& fleet, Chance& chance) : fleet_(fleet), chance_(chance) {}

bool Storm::is_free(std::size_t server) const {
  return std::none_of(slots_.begin(), slots_.end(),
                      [&](const Slot& slot) { return slot.server == server; });
}

std::size_t Storm::any_free() {
  while (true) {
    const auto server =
        static_cast<std::size_t>(chance_.up_to(static_cast<int>(fleet_.size()) - 1));
    if (is_free(server)) return server;
  }
}

/// Draws a kind of harm. Only servers that keep everything are killed at any time, because the
/// others would be out for long.
Harm Storm::any_harm(std::size_t server) {
  while (true) {
    const Harm harm = kinds[chance_.up_to(static_cast<int>(std::size(kinds)) - 1)].harm;
    const bool forgets = harm == Harm::killed && fleet_.keeping(server) != Keeping::aof_always;
    const bool no_clock = harm == Harm::clock && !fleet_.has_clock(server);
    if (!forgets && !no_clock) return harm;
  }
}

void Storm::do_harm(std::size_t server, Harm harm) {
  FaultProxy& proxy = fleet_.proxy(server);
  const auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                                 [&](const Kind& each) { return each.harm == harm; });
  ++harms_[kind->name];
  if (harm == Harm::killed) fleet_.server(server).kill_hard();
  if (harm == Harm::frozen) fleet_.server(server).stop();
  if (harm == Harm::deaf) proxy.black_hole(Direction::requests);
  if (harm == Harm::mute) proxy.black_hole(Direction::replies);
  if (harm == Harm::refusing) {
    proxy.refuse(true);
    proxy.reset_connections();
  }
  if (harm == Harm::slow) {
    proxy.delay(any_direction(chance_), chance_.between(milliseconds(10), milliseconds(400)));
  }
  if (harm == Harm::late) proxy.hold(Direction::requests);
  if (harm == Harm::unanswered) proxy.hold(Direction::replies);
  if (harm == Harm::doubled) {
    for (int i = 0; i < 20; ++i) proxy.duplicate_request();
  }
  if (harm == Harm::clock) {
    const auto by = chance_.between(milliseconds(-5000), milliseconds(5000));
    fleet_.clock(server).advance(by);
  }
}

void Storm::mend(std::size_t server, Harm harm) {
  FaultProxy& proxy = fleet_.proxy(server);
  if (harm == Harm::killed) fleet_.server(server).restart();
  if (harm == Harm::frozen) fleet_.server(server).cont();
  // Data that a network lost must not be followed by later data, neither on those connections nor
  // on one that is made meanwhile.
  if (harm == Harm::deaf || harm == Harm::mute || harm == Harm::unanswered) {
    proxy.refuse(true);
    proxy.reset_connections();
  }
  proxy.heal();
}

void Storm::strike(Slot& slot) {
  slot.server = any_free();
  slot.harm = any_harm(*slot.server);
  do_harm(*slot.server, slot.harm);
  slot.until = later(BootClock::now(), slot.harm == Harm::clock
                                           ? longest_ttl
                                           : chance_.between(milliseconds(50), milliseconds(2000)));
}

/// Kills and restarts a server that keeps nothing, or not all.
void Storm::forget(Slot& slot) {
  do {
    slot.server = any_free();
  } while (fleet_.keeping(*slot.server) == Keeping::aof_always);
  slot.harm = Harm::killed;
  do_harm(*slot.server, slot.harm);
  fleet_.server(*slot.server).restart();
  slot.until = later(BootClock::now(), guarded);
}

void Storm::release(Slot& slot) {
  if (!slot.server) return;
  const bool restarted = fleet_.keeping(*slot.server) != Keeping::aof_always;
  if (slot.harm != Harm::killed || !restarted) mend(*slot.server, slot.harm);
  slot.server.reset();
  slot.until = later(BootClock::now(), chance_.between(milliseconds(0), milliseconds(400)));
}

void Storm::harm_minority(Deadline until) {
  const auto left = left_until(until);
  const auto forgets_at = later(BootClock::now(), chance_.between(left / 2, left * 3 / 4));
  bool forgot = false;
  while (BootClock::now() < until) {
    for (Slot& slot : slots_) {
      if (BootClock::now() < slot.until) continue;
      if (slot.server) {
        release(slot);
      } else if (!forgot && BootClock::now() >= forgets_at) {
        forgot = true;
        forget(slot);
      } else {
        strike(slot);
      }
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  for (Slot& slot : slots_) {
    if (slot.until - BootClock::now() < longest_ttl) release(slot);
  }
}

Storm::Outage Storm::harm_majority(milliseconds span) {
  constexpr Harm fatal[] = {Harm::frozen, Harm::deaf, Harm::mute, Harm::refusing, Harm::killed};
  std::vector<std::size_t> order(fleet_.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), chance_.engine());
  const auto least = static_cast<int>(fleet_.size() / 2 + 1);
  const auto most = static_cast<int>(fleet_.size());
  order.resize(static_cast<std::size_t>(least + chance_.up_to(most - least)));
  std::vector<Harm> done;
  for (const std::size_t server : order) {
    const bool keeps = fleet_.keeping(server) == Keeping::aof_always;
    done.push_back(fatal[chance_.up_to(keeps ? 4 : 3)]);
    do_harm(server, done.back());
  }
  Outage outage{BootClock::now(), {}};
  std::this_thread::sleep_for(span);
  outage.to = BootClock::now();
  for (std::size_t i = 0; i < order.size(); ++i) mend(order[i], done[i]);
  return outage;
}

void Storm::empty_majority() {
  for (std::size_t i = 0; i < fleet_.size() / 2 + 1; ++i) {
    fleet_.server(i).command({"FLUSHALL"});
    ++harms_["emptied"];
  }
}

}  // namespace dlock::test
