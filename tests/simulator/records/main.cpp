// Runs many schedules of clients that share a record: records [--schedules N] [--seed N] [--flaw
// 0..3] [--weakened]. Exit status 0: no fault was found; with --weakened: a fault was found.

#include <sys/random.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "cas/cas_store.hpp"
#include "rule/table_format.hpp"
#include "simulator/records/place.hpp"

namespace dlock::sim {
namespace {

const LockKey the_key{"k"};
constexpr const char* record_of_key = "dlock:k:k";
constexpr int steps = 60;
constexpr int deepest = 3;

RecordFaults faults_by(Chance& chance) {
  const auto rate = [&] { return chance.one_in(2) ? 0 : 3 + chance.up_to(17); };
  return {rate(), rate(), rate(), rate()};
}

CallOptions by_any_time() { return {now_in_schedule + std::chrono::seconds(30), -1}; }

bool go_together(Limit a, Limit b) { return a.admits(2) && b.admits(2); }

/// A few clients that use one key in every way, and checks of what they may believe about it.
class RecordSchedule {
 public:
  RecordSchedule(std::uint64_t seed, PlaceFlaw flaw)
      : chance_(seed), place_(chance_, faults_by(chance_), flaw), clients_(4) {
    for (Client& client : clients_) {
      auto way = std::make_unique<SimulatedBackend>(place_);
      client.way = way.get();
      client.store = std::make_unique<CasStore>(std::move(way), "dlock:");
    }
    place_.meanwhile = [this] {
      while (depth_ < deepest && chance_.one_in(3)) {
        Client& other = clients_[chance_.up_to(clients_.size() - 1)];
        if (other.busy) return;
        ++depth_;
        act(other);
        --depth_;
      }
    };
  }

  /// The promise that was broken; empty if none was.
  std::string run() {
    for (int step = 0; step < steps && fault_.empty(); ++step) {
      act(clients_[chance_.up_to(clients_.size() - 1)]);
      if (chance_.one_in(12)) now_in_schedule += std::chrono::seconds(chance_.up_to(70));
      if (chance_.one_in(6)) {
        place_.sweep([](const RecordPlace::Row& row) {
          const auto named = parse_record(row.text, "row");
          const auto still = [](const HoldEntry& hold) {
            return RecordPlace::when(hold.at + hold.lease) > now_in_schedule;
          };
          const auto& holds = named.table.holds;
          return named.table.queue.empty() && std::none_of(holds.begin(), holds.end(), still);
        });
      }
    }
    if (fault_.empty()) check_end();
    return fault_;
  }

 private:
  struct Client {
    SimulatedBackend* way = nullptr;
    std::unique_ptr<CasStore> store;
    Claim claim;
    enum class State { idle, waiting, holding } state = State::idle;
    std::optional<Ticket> ticket;
    Fence fence;
    Deadline valid_until{};
    bool busy = false;
    bool queued = false;  ///< as it was told; its connection is open
  };

  void act(Client& client) {
    if (client.busy) return;
    client.busy = true;
    try {
      if (client.state == Client::State::idle)
        begin(client);
      else if (client.state == Client::State::waiting)
        go_on_waiting(client);
      else
        go_on_holding(client);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable) violated(error.what());
    }
    client.busy = false;
  }
  void begin(Client& client) {
    client.claim = Claim{};
    client.claim.key = the_key;
    client.claim.owner = new_owner_below(std::nullopt);
    client.claim.token = new_token(client.claim.owner);
    client.claim.ttl = chance_.over_scales(milliseconds(200), milliseconds(20'000));
    client.claim.limit = chance_.one_in(3) ? no_limit : exclusive;
    client.ticket.reset();
    // If the answer is lost, the client counts as waiting: it asks again or leaves.
    client.state = Client::State::waiting;
    ask(client, !chance_.one_in(3));
  }
  void ask(Client& client, bool wait) {
    client.queued = false;
    const Answer answer = client.store->acquire(client.claim, {wait, client.ticket}, by_any_time());
    if (const auto* grant = std::get_if<Grant>(&answer)) return granted(client, *grant);
    client.ticket = std::get<Refusal>(answer).ticket;
    if (!wait) client.state = Client::State::idle;
    client.queued = wait && std::get<Refusal>(answer).why == Refusal::Reason::held;
    LockTable now = table();
    check_waiter(client, now);
  }
  void go_on_waiting(Client& client) {
    LockTable now = table();
    check_waiter(client, now);
    client.queued = false;
    const auto what = chance_.up_to(9);
    if (what == 0) return release(client);
    if (what <= 3) return ask(client, true);
    const Wake wake = client.store->sleep(client.claim, now_in_schedule, -1);
    if (wake.why != Wake::Reason::granted) return;
    if (wake.grant) granted(client, *wake.grant);
    if (wake.grant && chance_.one_in(2)) return;
    const auto renewed = client.store->renew(client.claim, {}, by_any_time()).grant;
    if (renewed) granted(client, *renewed);
  }
  void go_on_holding(Client& client) {
    const auto what = chance_.up_to(9);
    if (what <= 3) return release(client);
    if (what == 4) {
      client.store->suspend(Suspension::rest);
      return;
    }
    const auto renewed = client.store->renew(client.claim, {}, by_any_time()).grant;
    if (renewed) return granted(client, *renewed);
    client.state = Client::State::idle;
  }
  /// Repeats the release until it is answered, because earlier requests may arrive at any time.
  void release(Client& client) {
    client.state = Client::State::idle;
    for (int tries = 0; tries < 20; ++tries) {
      try {
        client.store->release(client.claim, {}, by_any_time());
        released_.insert(client.claim.token);
        return;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::unavailable) throw;
      }
    }
  }
  void granted(Client& client, const Grant& grant) {
    client.state = Client::State::holding;
    client.fence = grant.fence;
    client.valid_until = grant.lease.valid_until;
    // The grant has come too late to be of use.
    if (client.valid_until <= now_in_schedule) return;
    for (const Client& other : clients_) {
      const bool holds = &other != &client && other.state == Client::State::holding &&
                         other.valid_until > now_in_schedule;
      if (!holds) continue;
      if (!go_together(client.claim.limit, other.claim.limit)) violated("two holders");
      if (other.fence == grant.fence) violated("one fence twice");
    }
    largest_ = std::max(largest_, grant.fence);
    if (client.claim.limit == exclusive && grant.fence < largest_) violated("a fence fell behind");
    check_lease(client);
  }
  void check_lease(const Client& client) {
    LockTable now = table();
    const HoldEntry* own = now.find_hold(client.claim.token);
    if (own == nullptr) return violated("a holder is not in the record");
    if (RecordPlace::when(own->at + own->lease) < client.valid_until) {
      violated("a lease is believed in for longer than the place counts");
    }
  }
  void check_end() {
    place_.meanwhile = nullptr;
    place_.deliver_all();
    LockTable now = table();
    for (const Token& token : released_) {
      const HoldEntry* hold = now.find_hold(token);
      if (hold != nullptr && hold->inside()) violated("a released token holds again");
      if (now.find_waiter(token) != now.queue.end()) violated("a released token waits again");
    }
  }
  /// Checks that a waiter whose connection is open keeps its position until it is granted the lock.
  void check_waiter(const Client& client, LockTable& now) {
    if (!client.queued || !client.way->is_connected()) return;
    const bool there = now.find_waiter(client.claim.token) != now.queue.end() ||
                       now.find_hold(client.claim.token) != nullptr;
    if (!there && !client.way->has_message()) violated("a living waiter lost its place");
  }
  LockTable table() const {
    const auto found = place_.rows.find(record_of_key);
    return found == place_.rows.end() ? LockTable{} : parse_record(found->second.text, "row").table;
  }
  void violated(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }

  Chance chance_;
  RecordPlace place_;
  std::vector<Client> clients_;
  int depth_ = 0;
  Fence largest_;
  std::set<Token> released_;
  std::string fault_;
};

}  // namespace
}  // namespace dlock::sim

static dlock::sim::Chance randomness(1);

extern "C" int clock_gettime(clockid_t, timespec* now) noexcept {
  const auto since = dlock::sim::now_in_schedule.time_since_epoch();
  now->tv_sec = std::chrono::floor<std::chrono::seconds>(since).count();
  now->tv_nsec = (since % std::chrono::seconds(1)).count();
  return 0;
}

extern "C" ssize_t getrandom(void* bytes, size_t size, unsigned) {
  for (size_t i = 0; i < size; ++i) {
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(randomness.next());
  }
  return static_cast<ssize_t>(size);
}

namespace dlock {

int poll_until(std::span<pollfd>, Deadline deadline) {
  sim::now_in_schedule = std::max(sim::now_in_schedule, deadline);
  return 0;
}

bool readable(int) { return false; }

bool sleep_until(Deadline deadline, int) { return poll_until({}, deadline) > 0; }

}  // namespace dlock

int main(int argc, char** argv) {
  using namespace dlock::sim;
  std::uint64_t schedules = 1000, seed = 1;
  PlaceFlaw flaw = PlaceFlaw::none;
  bool weakened = false;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&] { return std::strtoull(i + 1 < argc ? argv[++i] : "0", nullptr, 10); };
    if (std::strcmp(argv[i], "--schedules") == 0)
      schedules = number();
    else if (std::strcmp(argv[i], "--seed") == 0)
      seed = number();
    else if (std::strcmp(argv[i], "--flaw") == 0)
      flaw = static_cast<PlaceFlaw>(number());
    else if (std::strcmp(argv[i], "--weakened") == 0)
      weakened = true;
  }
  for (std::uint64_t i = 0; i < schedules; ++i) {
    randomness = Chance(seed + i);
    const std::string fault = RecordSchedule(seed + i, flaw).run();
    if (fault.empty()) continue;
    std::printf("schedule %llu: %s\n", static_cast<unsigned long long>(seed + i), fault.c_str());
    return weakened ? 0 : 1;
  }
  if (!weakened)
    std::printf("%llu schedules: nothing found\n", static_cast<unsigned long long>(schedules));
  return weakened ? 1 : 0;
}
