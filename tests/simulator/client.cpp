#include "simulator/client.hpp"

#include <algorithm>
#include <utility>

#include "base/wait.hpp"
#include "lock/lease_renewer.hpp"
#include "lock/release.hpp"
#include "quorum/quorum_store.hpp"
#include "support/silent_listener.hpp"

namespace dlock::sim {
namespace {

const LockKey the_key{"k"};
/// The renewals until all nodes have the hold: one finds that a node lacks it, one makes that
/// node rejoin, and one may come too early.
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

/// The work under a lock. Like the supervisor of a command it stops in time by itself, whatever the
/// renewals are busy with.
class Work final : public std::enable_shared_from_this<Work> {
 public:
  /// `stop`: an event of `process`, raised when the work has ended.
  Work(Process& process, Checker& checker, std::size_t hold, int stop, milliseconds grace)
      : process_(process), checker_(checker), hold_(hold), stop_(stop), grace_(grace) {}

  /// All holds are ours until `safe_until`, whatever happens.
  void promised(Deadline safe_until) {
    if (over_ || safe_until == safe_until_) return;
    safe_until_ = safe_until;
    checker_.promised(hold_, safe_until);
    look_at_clock();
  }
  void told(const RenewalOutcome& renewal) {
    World& world = World::here();
    if (!renewal.loss) {
      world.count("renewals");
      renewals_ = world.healed() ? renewals_ + 1 : 0;
      return world.tell([&] { return process_.name() + " has renewed"; });
    }
    world.tell([&] { return process_.name() + " cannot renew: " + renewal.loss->reason; });
    if (!renewal.loss->final || over_) return;
    world.count("lost");
    stopped("loses it");
  }
  /// How many renewals have succeeded in a row since the healing.
  int renewals_without_fault() const { return renewals_; }
  /// The work ends by itself.
  void done() { stopped("has done its work"); }
  void end() { over_ = true; }

 private:
  /// Stops the work when its time has come, or looks again then.
  void look_at_clock() {
    if (over_ || process_.killed()) return;
    World& world = World::here();
    const auto left = safe_until_ - grace_ - process_.read_clock();
    if (left <= Span(0) && !process_.frozen()) {
      world.count("stopped before the deadline");
      return stopped("is stopped before its deadline");
    }
    const Instant next = std::max(world.now() + std::max(left, Span(0)) + Span(1), process_.thaw());
    world.at(next, [self = shared_from_this()] { self->look_at_clock(); });
  }
  void stopped(const std::string& why) {
    if (over_ || process_.killed()) return;
    over_ = true;
    World::here().tell([&] { return process_.name() + " " + why; });
    checker_.ends(hold_);
    process_.set_event(stop_, true);
  }

  Process& process_;
  Checker& checker_;
  std::size_t hold_;
  int stop_;
  milliseconds grace_;
  Deadline safe_until_{};
  bool over_ = false;
  int renewals_ = 0;
};

/// The reasons of a refusal, in their order.
constexpr const char* reasons[] = {"held", "upgrade", "gone", "superseded", "split", "unready"};

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

std::unique_ptr<SimulatedNodeClients> Client::new_clients() {
  return std::make_unique<SimulatedNodeClients>(process(), index_, network_, servers_);
}

/// Runs one round with a store of its own, as a command does. Returns whether it acquired the lock.
bool Client::one_round(std::optional<milliseconds> wait) {
  auto nodes = new_clients();
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
  world.count("asked for the lock");
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
      held_since_healing_ = held_since_healing_ || after_healing;
      const Token token = held->front().claim.token;
      hold(store, held->front(), asked);
      if (after_healing) {
        expect_gone([token](const HoldEntry& hold) { return hold.token == token; }, "released it");
      }
      return true;
    }
    if (const auto* up = std::get_if<GaveUp>(&acquired)) {
      world.count("not acquired in time");
      outcome = std::string("gives up: ") + reasons[static_cast<int>(up->refusal.why)];
      if (after_healing && !plan_.same_owner) {
        expect_gone([owner = claim.owner](const HoldEntry& hold) { return hold.owner == owner; },
                    "gave up");
      }
    }
  } catch (const Error& error) {
    world.count("no majority in reach");
    outcome = std::string("fails: ") + error.what();
  }
  interrupt_fd_ = -1;
  checker_.waits_no_more(process());
  world.tell([&] { return process().name() + " " + outcome; });
  return false;
}

/// Checks that soon no server has anything of an abandoned claim or of a released hold, even if it
/// was made to rejoin at the last moment.
void Client::expect_gone(const std::function<bool(const HoldEntry&)>& is_such, const char* did) {
  World::here().after(Span(plan_.ttl) * 2 / 3, [this, is_such, did] {
    for (const Server& server : servers_) {
      if (!server.has(is_such)) continue;
      World::here().violated(server.name() + " still keeps the lock for c" +
                             std::to_string(index_) + ", which " + did);
    }
  });
}

/// Checks that the nodes without the hold have recorded it.
void Client::expect_whole(const Claim& claim) {
  for (const Server& server : servers_) {
    const bool free = server.might_have_rejoined(claim.token, plan_.ttl);
    if (server.has_holder(claim.owner) || !free) continue;
    World::here().violated(server.name() + " is free, and was not made to re-join " +
                           process().name());
  }
}

void Client::hold(Store& store, Held held, Instant asked) {
  World& world = World::here();
  const bool in_one_exchange = nodes_->had() == 1;
  world.count("acquired");
  if (in_one_exchange) world.count("acquired in one exchange");
  if (plan_.clocks_are_alike()) {
    world.count("acquired where clocks are alike");
    if (in_one_exchange) world.count("acquired in one exchange where clocks are alike");
  }
  Checker::QuorumHold taken{&process(),       held.claim.token, held.claim.owner,
                            held.claim.limit, held.grant.fence, asked};
  taken.safe_until = held.grant.lease.valid_until;
  world.tell([&] {
    return process().name() + " has it, fence " + std::to_string(held.grant.fence.value) +
           ", for " + text_of(held.grant.lease.valid_until - process().read_clock());
  });
  const std::size_t number = checker_.begins(std::move(taken));
  const Event stop, stepped;
  stepped_fd_ = stepped.fd();
  steps_ = Span(0);
  const Span span = chance().between(Span(0), Span(plan_.longest_hold));
  const auto work =
      std::make_shared<Work>(process(), checker_, number, stop.fd(), usual_grace(plan_.ttl));
  work->promised(held.grant.lease.valid_until);
  world.after(span, [work] { work->done(); });
  // A second store may renew, as it does while a second key is waited for.
  QuorumStore second(new_clients());
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
