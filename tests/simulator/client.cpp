#include "simulator/client.hpp"

#include <algorithm>
#include <utility>

#include "base/wait.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/release.hpp"
#include "quorum/quorum_store.hpp"
#include "simulator/work.hpp"
#include "support/silent_listener.hpp"

namespace dlock::sim {
namespace {

const LockKey the_key{"k"};
/// The renewals until all members have the hold: one finds that a member lacks it, one makes that
/// member rejoin, and one may come too early.
constexpr int renewals_to_be_whole = 3;

/// Checks that servers which cannot have forgotten anything have their votes.
class VoteListener final : public test::SilentListener {
 public:
  explicit VoteListener(const Plan& plan) : plan_(plan) {}
  void waiting(const LockKey&, const Refusal& refusal) override {
    if (refusal.why != Refusal::Reason::unready || !plan_.memories_last()) return;
    World::here().violated("no server can have forgotten a lease, and too few have a vote");
  }

 private:
  const Plan& plan_;
};

std::string text_of(const Refusal& refusal) {
  switch (refusal.why) {
    case Refusal::Reason::held:
      return "held";
    case Refusal::Reason::upgrade:
      return "upgrade";
    case Refusal::Reason::superseded:
      return "superseded";
    case Refusal::Reason::gone:
      return "gone";
    case Refusal::Reason::split:
      return "split";
    case Refusal::Reason::unready:
      return "unready";
  }
  return "";
}

}  // namespace

Client::Client(std::size_t index, const Plan& plan, MachineClock clock, Network& network,
               std::vector<Server>& servers, Checker& checker)
    : index_(index),
      plan_(plan),
      clock_(clock),
      network_(network),
      servers_(servers),
      checker_(checker) {}

void Client::start() {
  const std::string name = "c" + std::to_string(index_) + std::string(processes_.size(), '\'');
  interrupt_fd_ = stepped_fd_ = -1;
  processes_.push_back(std::make_unique<Process>(name, clock_));
  process().set_rests(healed_ ? 0 : plan_.rest_one_in, plan_.longest_rest);
  process().start([this] { live(); });
}

void Client::interrupt() {
  if (interrupt_fd_ >= 0) process().set_event(interrupt_fd_, true);
}

void Client::wall_stepped(Span by) {
  clock_.step_wall(by);
  steps_ += by;
  if (stepped_fd_ >= 0) process().set_event(stepped_fd_, true);
}

void Client::healed() {
  healed_ = true;
  process().set_rests(0, Span(0));
}

void Client::live() {
  for (; rounds_ < plan_.rounds && !healed_; ++rounds_) {
    pause(chance().between(milliseconds(0), plan_.longest_thought));
    std::optional<milliseconds> wait = milliseconds(0);
    if (chance().one_in(2)) wait = chance().over_scales(milliseconds(1), plan_.ttl * 4);
    if (chance().one_in(3) || plan_.orderly) wait.reset();
    one_round(wait);
  }
  while (!healed_) pause(plan_.ttl);
  if (chance().one_in(2)) one_round(milliseconds(0));
  while (!one_round(std::nullopt)) pause(milliseconds(2000));
  done_ = true;
}

std::unique_ptr<SimulatedNodeClients> Client::new_council() {
  return std::make_unique<SimulatedNodeClients>(process(), index_, network_, servers_);
}

/// Runs one round with a store of its own, as a command does. Returns whether it acquired the lock.
bool Client::one_round(std::optional<milliseconds> wait) {
  auto nodes = new_council();
  nodes_ = nodes.get();
  QuorumStore store(std::move(nodes));
  return one_round(store, wait);
}

void Client::pause(milliseconds span) { poll_until({}, later(BootClock::now(), span)); }

Claim Client::new_claim() {
  if (!owner_ || !plan_.same_owner) owner_ = new_owner_below(std::nullopt);
  Claim claim;
  claim.key = the_key;
  claim.owner = *owner_;
  claim.token = new_token(claim.owner);
  claim.limit = Limit{plan_.limits[chance().up_to(plan_.limits.size() - 1)]};
  claim.ttl = plan_.ttl;
  claim.who.host = process().name();
  return claim;
}

bool Client::one_round(Store& store, std::optional<milliseconds> wait) {
  World& world = World::here();
  const bool after_healing = healed_;
  Claim claim = new_claim();
  claim.latest = !healed_ && wait != milliseconds(0) && chance().one_in(4);
  const Instant asked = world.now();
  const Event interrupt;
  interrupt_fd_ = interrupt.fd();
  ++world.statistics().asked;
  world.tell([&] {
    return process().name() + " asks, limit " + std::to_string(claim.limit.owners) + ", token " +
           claim.token.text.substr(claim.token.text.size() - 4);
  });
  VoteListener listener(plan_);
  const AcquireOptions terms{wait, interrupt.fd(), {}};
  std::string outcome = "is interrupted";
  if (!wait) checker_.waits(process());
  try {
    auto acquired = acquire(store, {claim}, terms, listener);
    interrupt_fd_ = -1;
    if (auto* held = std::get_if<std::vector<Held>>(&acquired)) {
      had_since_healing_ = had_since_healing_ || after_healing;
      const Token token = held->front().claim.token;
      hold(store, held->front(), asked);
      if (after_healing) expect_given_back(token);
      return true;
    }
    if (const auto* up = std::get_if<GaveUp>(&acquired)) {
      ++world.statistics().given_up;
      outcome = "gives up: " + text_of(up->refusal);
      if (after_healing && !plan_.same_owner) expect_nothing_left(claim.owner);
    }
  } catch (const Error& error) {
    ++world.statistics().unavailable;
    outcome = std::string("fails: ") + error.what();
  }
  interrupt_fd_ = -1;
  checker_.waits_no_more(process());
  world.tell([&] { return process().name() + " " + outcome; });
  return false;
}

/// Checks that no vote for an abandoned claim stays until its lease ends.
void Client::expect_nothing_left(const Owner& owner) {
  World::here().after(Span(plan_.ttl) * 2 / 3, [this, owner] {
    for (const Server& server : servers_) {
      if (!server.lets_in(owner)) continue;
      World::here().violated(server.name() + " still keeps the lock for c" +
                             std::to_string(index_) + ", which gave up");
    }
  });
}

/// Checks that the release reaches all servers, even one that was made to rejoin at the last
/// moment.
void Client::expect_given_back(const Token& token) {
  World::here().after(Span(plan_.ttl) * 2 / 3, [this, token] {
    for (const Server& server : servers_) {
      if (!server.holds(token)) continue;
      World::here().violated(server.name() + " still keeps what c" + std::to_string(index_) +
                             " has given back");
    }
  });
}

/// Checks that the members without the hold have recorded it.
void Client::expect_whole(const Claim& claim) {
  for (const Server& server : servers_) {
    const bool free = server.might_have_rejoined(claim.token, plan_.ttl);
    if (server.lets_in(claim.owner) || !free) continue;
    World::here().violated(server.name() + " is free, and was not made to re-join " +
                           process().name());
  }
}

void Client::hold(Store& store, Held held, Instant asked) {
  World& world = World::here();
  Statistics& statistics = world.statistics();
  const bool in_one_exchange = nodes_->had() == 1;
  ++statistics.grants;
  if (in_one_exchange) ++statistics.grants_in_one_exchange;
  if (plan_.clocks_are_alike()) {
    ++statistics.grants_by_like_clocks;
    if (in_one_exchange) ++statistics.of_these_in_one_exchange;
  }
  Checker::QuorumHold quorum_hold{&process(),       held.claim.token, held.claim.owner,
                                  held.claim.limit, held.grant.fence, asked};
  quorum_hold.safe_until = held.grant.lease.valid_until;
  world.tell([&] {
    return process().name() + " has it, fence " + std::to_string(held.grant.fence.value) +
           ", for " + text_of(held.grant.lease.valid_until - process().read_clock());
  });
  const std::size_t number = checker_.begins(std::move(quorum_hold));
  const Event stop, stepped;
  stepped_fd_ = stepped.fd();
  steps_ = Span(0);
  const Span span = chance().between(Span(0), Span(plan_.longest_hold));
  const auto work =
      std::make_shared<Work>(process(), checker_, number, stop.fd(), usual_grace(plan_.ttl));
  work->promised(held.grant.lease.valid_until);
  world.after(span, [work] { work->done(); });
  // A second store may renew, as it does while a second key is waited for.
  QuorumStore second(new_council());
  const bool elsewhere = chance().one_in(3);
  held.renewed_elsewhere = elsewhere;
  RenewalSchedule schedule(elsewhere ? second : store, {held}, stop.fd());
  while (!stop.raised()) {
    pollfd fds[] = {{stop.fd(), POLLIN, 0}, {stepped.fd(), POLLIN, 0}};
    poll_until(fds, schedule.next_due());
    if (stop.raised()) break;
    stepped.clear();
    schedule.doubt(std::exchange(steps_, Span(0)));
    while (const auto renewal = schedule.renew_next()) {
      work->told(*renewal);
      work->promised(schedule.safe_until());
    }
  }
  stepped_fd_ = -1;
  if (work->renewals_without_fault() > renewals_to_be_whole) expect_whole(held.claim);
  work->end();
  const auto last = schedule.take();
  if (BootClock::now() >= last.front().grant.lease.valid_until) return;
  world.tell([&] { return process().name() + " gives it back"; });
  constexpr milliseconds longest_release{2000};
  release_all(store, last, longest_release);
}

}  // namespace dlock::sim
