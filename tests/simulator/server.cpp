#include "simulator/server.hpp"

#include <algorithm>
#include <utility>

namespace dlock::sim {
namespace {

/// Twice as far as a proposal may be from the clock, which is farther than a lease lasts.
constexpr microseconds quarantine_after_a_loss = 2 * reference::furthest_proposal;

/// Longer than the quarantine: a server that was never used votes at once.
constexpr std::chrono::hours uptime_at_first{1};

const Token& token_of(const Request& request) {
  static const Token none;
  if (const auto* vote = std::get_if<Vote>(&request)) return vote->claim.token;
  if (const auto* renewal = std::get_if<Renewal>(&request)) return renewal->claim.token;
  if (const auto* rejoining = std::get_if<Rejoining>(&request)) return rejoining->claim.token;
  if (const auto* release = std::get_if<WireRelease>(&request)) return release->token;
  return none;
}

}  // namespace

Server::Server(std::size_t index, MachineClock clock, bool always_fsync, bool fresh)
    : name_("m" + std::to_string(index)),
      clock_(clock),
      always_fsync_(always_fsync),
      started_(wall() - uptime_at_first) {
  if (!fresh) memory_.alive = Alive{run(), microseconds(0), always_fsync};
}

microseconds Server::wall() const {
  return std::chrono::floor<microseconds>(clock_.wall(World::here().now()));
}

microseconds Server::quarantine() const {
  if (!memory_.alive) return quarantine_after_a_loss;
  return std::max(microseconds(0), memory_.alive->since + quarantine_after_a_loss - wall());
}

microseconds Server::whole_since() const { return flushed_ ? wall() : std::min(wall(), started_); }

bool Server::wake(const WaiterEntry& waiter, const Message& message) {
  bool somebody = false;
  for (const Listener& listener : listeners_) {
    if (listener.token != waiter.token) continue;
    listener.connection->publish(message);
    somebody = true;
  }
  return somebody;
}

void Server::connected(std::weak_ptr<Connection> connection) {
  connections_.push_back(std::move(connection));
}

void Server::listens(const std::shared_ptr<Connection>& connection, const Token& token) {
  listens_no_more(*connection);
  listeners_.push_back({connection, token});
}

void Server::listens_no_more(const Connection& connection) {
  std::erase_if(listeners_,
                [&](const Listener& listener) { return listener.connection.get() == &connection; });
}

std::optional<Granted> Server::granted(const Token& token) const {
  for (const HoldEntry& hold : memory_.table.stored.holds) {
    if (hold.token == token && hold.inside()) return Granted{hold.fence, hold.lease};
  }
  return std::nullopt;
}

Said Server::execute(const Request& request) {
  reference::RedisTable& table = memory_.table;
  const std::vector<HoldEntry> before = table.stored.holds;
  const reference::ServerNow now{wall(), quarantine(), true};
  Said said;
  if (const auto* vote = std::get_if<Vote>(&request)) {
    said.answer = table.acquire(vote->claim, vote->ask, now, *this, vote->proposal);
  } else if (const auto* renewal = std::get_if<Renewal>(&request)) {
    const auto& [ttl, raise] = renewal->terms;
    const Token& token = renewal->claim.token;
    const auto lease = table.renew(token, ttl, now, *this, raise);
    const auto renewed = lease ? granted(token) : std::nullopt;
    const bool raised = renewed && raise && renewed->fence == *raise &&
                        std::none_of(before.begin(), before.end(), [&](const HoldEntry& hold) {
                          return hold.token == token && hold.fence == *raise;
                        });
    if (raised) World::here().count("fences raised");
    said.answer = renewed;
  } else if (const auto* rejoining = std::get_if<Rejoining>(&request)) {
    const auto taken = table.rejoin(rejoining->claim, rejoining->fence, now, *this);
    if (taken) World::here().count("holds recorded by re-joining");
    said.answer = taken;
  } else if (const auto* release = std::get_if<WireRelease>(&request)) {
    released_.push_back(release->token);
    said.answer = table.release(release->token, release->terms, now, *this);
  } else if (const auto* record_process = std::get_if<RecordProcess>(&request)) {
    auto& alive = memory_.alive;
    const bool lost_nothing = alive && alive->always && record_process->always;
    alive = Alive{record_process->run, lost_nothing ? alive->since : whole_since(),
                  record_process->always};
  }
  if (!before.empty() || !table.stored.holds.empty() || quarantine() > microseconds(0)) {
    last_busy_ = World::here().now();
  }
  check_others(before, token_of(request));
  said.clock = wall();
  said.quarantine = std::chrono::ceil<milliseconds>(quarantine());
  if (memory_.alive) said.remembered_run = memory_.alive->run;
  said.run = run();
  said.always = always_fsync_;
  return said;
}

/// Checks that a request changes only the hold of its own token, and the fence of its owner, which
/// all holds of that owner share. Expired holds may disappear.
void Server::check_others(const std::vector<HoldEntry>& before, const Token& token) const {
  const auto& after = memory_.table.stored.holds;
  const auto own = std::find_if(after.begin(), after.end(),
                                [&](const HoldEntry& hold) { return hold.token == token; });
  for (const HoldEntry& hold : before) {
    if (hold.token == token || left_of(hold, wall()) <= microseconds(0)) continue;
    const bool of_own = own != after.end() && own->owner == hold.owner;
    const bool there = std::any_of(after.begin(), after.end(), [&](const HoldEntry& other) {
      return other.token == hold.token && other.owner == hold.owner && other.flag == hold.flag &&
             other.lease == hold.lease && (of_own || other.fence == hold.fence);
    });
    if (!there) World::here().violated(name_ + ": a request changed the hold of another token");
  }
}

void Server::die(Death death) {
  up_ = false;
  death_ = death;
  listeners_.clear();
  for (const auto& each : std::exchange(connections_, {})) {
    const auto connection = each.lock();
    if (connection && death == Death::killed) connection->server_gone();
  }
}

void Server::start(Memory memory) {
  if (memory == Memory::none) memory_ = {};
  if (memory == Memory::of_the_snapshot) memory_ = snapshot_;
  snapshot_ = memory_;
  up_ = true;
  started_ = wall();
  flushed_ = false;
  thaw_ = {};
  ++life_;
}

void Server::flush() {
  memory_ = {};
  flushed_ = true;
}

Instant Server::closed_until(const Token& token) const {
  const bool quarantined = !memory_.alive || memory_.alive->run != run();
  const Instant now = World::here().now();
  Instant end = now + quarantine();
  const bool remembers = memory_.alive && memory_.alive->always && always_fsync_;
  if (quarantined && !remembers) {
    end = std::max(now, clock_.instant_of_wall(whole_since() + quarantine_after_a_loss));
  }
  for (const HoldEntry& hold : memory_.table.stored.holds) {
    if (hold.token != token || !hold.inside()) continue;
    end = std::max(end, clock_.instant_of_wall(std::min(hold.at, wall()) + hold.lease));
  }
  return end;
}

bool Server::might_have_rejoined(const Token& token, Span for_so_long) const {
  const auto& holds = memory_.table.stored.holds;
  const bool was_released = std::find(released_.begin(), released_.end(), token) != released_.end();
  const bool free = last_busy_ + for_so_long < World::here().now();
  return !was_released && free && quarantine() == microseconds(0) &&
         std::none_of(holds.begin(), holds.end(), [&](const HoldEntry& hold) {
           return hold.counts() && left_of(hold, wall()) > microseconds(0);
         });
}

bool Server::has(const std::function<bool(const HoldEntry&)>& is_such) const {
  const auto& holds = memory_.table.stored.holds;
  return std::any_of(holds.begin(), holds.end(), [&](const HoldEntry& hold) {
    return is_such(hold) && hold.inside() && left_of(hold, wall()) > microseconds(0);
  });
}

}  // namespace dlock::sim
