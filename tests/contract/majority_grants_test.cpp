#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "contract/engines.hpp"
#include "lock/release.hpp"
#include "lock/store.hpp"
#include "quorum/node_threads.hpp"
#include "quorum/quorum_store.hpp"
#include "redis/redis_store.hpp"
#include "support/exchanges.hpp"
#include "support/fault_proxy.hpp"

namespace dlock::test {
namespace {

class CountingNodeClients final : public NodeClients {
 public:
  CountingNodeClients(OpenMembers open, Exchanges& exchanges)
      : nodes_(std::move(open)), exchanges_(exchanges) {}

  std::size_t size() const override { return nodes_.size(); }
  std::string name(std::size_t member) const override { return nodes_.name(member); }
  std::uint64_t ask(std::size_t member, NodeRequest request, Deadline deadline) override {
    exchanges_.asked(member, request);
    return nodes_.ask(member, std::move(request), deadline);
  }
  bool has_sent_releases(std::size_t member) const override {
    return nodes_.has_sent_releases(member);
  }
  std::optional<NodeReply> hear(Deadline until, int cancel_fd) override {
    auto heard = nodes_.hear(until, cancel_fd);
    if (heard) exchanges_.heard(*heard);
    return heard;
  }
  void begin_anew() override { nodes_.begin_anew(); }

 private:
  ThreadedNodeClients nodes_;
  Exchanges& exchanges_;
};

/// A QuorumStore over the servers at these addresses, with the default prefix. `exchanges` counts
/// its round trips and must outlive it.
StorePtr counted_majority(const std::vector<Address>& servers, Exchanges& exchanges) {
  const auto open = [servers] {
    std::vector<std::unique_ptr<Member>> members;
    for (const Address& each : servers) {
      Endpoint endpoint;
      endpoint.socket_path = each.path;
      endpoint.host = "127.0.0.1";
      endpoint.port = each.port;
      members.push_back(std::make_unique<RedisMember>(endpoint));
    }
    return members;
  };
  return std::make_unique<QuorumStore>(std::make_unique<CountingNodeClients>(open, exchanges));
}

constexpr int contenders = 10;
constexpr int grants_each = 20;

/// Counts grants by the number of exchanges that they took.
class Share {
 public:
  void count(std::size_t exchanges) {
    const std::lock_guard guard(mutex_);
    ++grants_[exchanges];
  }
  double of_one() { return 100.0 * grants_[1] / (contenders * grants_each); }

 private:
  std::mutex mutex_;
  std::map<std::size_t, int> grants_;
};

void contend(const std::vector<Address>& servers, Share& share) {
  for (int i = 0; i < grants_each; ++i) {
    Exchanges exchanges(servers.size());
    const StorePtr store = counted_majority(servers, exchanges);
    Listener listener;
    const auto held = had(acquire(*store, {claim_on("k")}, {std::nullopt, -1, {}}, listener));
    share.count(exchanges.taken());
    std::this_thread::sleep_for(milliseconds(1));
    release_all(*store, held, milliseconds(5000));
  }
}

/// The addresses of these servers, which vote at once.
std::vector<Address> ready(std::span<const RedisServer> fleet) {
  std::vector<Address> servers;
  for (const RedisServer& each : fleet) {
    record_process_of(each);
    servers.push_back(each.address());
  }
  return servers;
}

bool stands_on_all(std::span<const RedisServer> fleet, const std::string& key) {
  return std::all_of(fleet.begin(), fleet.end(), [&](const RedisServer& each) {
    return each.command({"EXISTS", "dlock:{" + key + "}"}).number == 1;
  });
}

std::size_t holders_at(const RedisServer& server, const std::string& key) {
  return state_of(*redis_store(endpoint_at(server.address())), key).holders.size();
}

/// Three servers and three clients, with a proxy between each client and each server.
class SplitVotes {
 public:
  static constexpr std::size_t size = 3;

  SplitVotes() {
    const std::vector<Address> servers = ready(fleet_);
    for (std::size_t i = 0; i < size * size; ++i) proxies_.emplace_back(servers[i % size]);
  }

  StorePtr open(std::size_t client) {
    std::vector<Address> servers;
    for (std::size_t i = 0; i < size; ++i) servers.push_back(proxy(client, i).address());
    return counted_majority(servers, exchanges_.emplace_back(size));
  }

  /// Lets each server hear only one client, a different one each, until the votes are split.
  void keep_apart() {
    for_others([](FaultProxy& proxy) { proxy.hold(Direction::requests); });
  }
  /// Delivers the other requests for k once each server has given its vote.
  void split() {
    REQUIRE(eventually([&] { return stands_on_all(fleet_, "k"); }));
    for_others([](FaultProxy& proxy) { proxy.deliver_held(Direction::requests); });
  }

  bool each_has_one_holder() const { return each_has(1); }
  bool is_free() const { return each_has(0); }

 private:
  FaultProxy& proxy(std::size_t client, std::size_t server) {
    return proxies_[client * size + server];
  }
  template <typename Action>
  void for_others(Action action) {
    for (std::size_t i = 0; i < size * size; ++i) {
      if (i / size != i % size) action(proxy(i / size, i % size));
    }
  }
  bool each_has(std::size_t holders) const {
    return std::all_of(fleet_.begin(), fleet_.end(),
                       [&](const RedisServer& each) { return holders_at(each, "k") == holders; });
  }

  std::array<RedisServer, size> fleet_;
  std::deque<FaultProxy> proxies_;
  std::list<Exchanges> exchanges_;
};

/// Gives each of three clients the vote of one of three servers. Returns whether all of them see
/// the split and none holds the lock. Then they release their votes.
bool three_see_the_split() {
  SplitVotes votes;
  std::vector<StorePtr> stores;
  std::vector<Claim> claims;
  for (std::size_t i = 0; i < SplitVotes::size; ++i) {
    stores.push_back(votes.open(i));
    claims.push_back(claim_on("k"));
  }
  votes.keep_apart();
  std::vector<std::future<Answer>> answers;
  for (std::size_t i = 0; i < SplitVotes::size; ++i) {
    answers.push_back(std::async(std::launch::async,
                                 [&, i] { return stores[i]->acquire(claims[i], {}, soon()); }));
  }
  votes.split();
  std::size_t seen = 0;
  for (auto& each : answers) {
    const Answer answer = each.get();
    const auto* refusal = std::get_if<Refusal>(&answer);
    if (refusal != nullptr && refusal->why == Refusal::Reason::split) ++seen;
  }
  if (seen < SplitVotes::size) return false;
  CHECK(votes.each_has_one_holder());
  for (std::size_t i = 0; i < SplitVotes::size; ++i) release(*stores[i], claims[i]);
  CHECK(eventually([&] { return votes.is_free(); }, long_ttl / 2));
  return true;
}

}  // namespace

TEST_CASE("of ten who want one lock of five servers, four in five have it in one exchange") {
  std::array<RedisServer, 5> fleet;
  const std::vector<Address> servers = ready(fleet);
  // On a busy machine, the servers may answer far apart.
  CHECK(in_one_of(3, [&] {
    Share share;
    std::vector<std::thread> threads;
    for (int i = 0; i < contenders; ++i) threads.emplace_back([&] { contend(servers, share); });
    for (std::thread& each : threads) each.join();
    MESSAGE((contenders * grants_each)
            << " grants, of which " << share.of_one() << " % took one exchange with the servers");
    return share.of_one() > 80;
  }));
}

TEST_CASE("a claim that does not wait leaves no vote where the answer comes after its refusal") {
  std::array<RedisServer, 3> fleet;
  const std::vector<Address> servers = ready(fleet);
  Exchanges exchanges(servers.size());
  const StorePtr holder = counted_majority(servers, exchanges);
  const StorePtr store = counted_majority(servers, exchanges);
  const Claim first = taken(*store, claim_on("links"));
  REQUIRE(eventually([&] { return stands_on_all(fleet, "links"); }));
  REQUIRE(release(*store, first) == Released::yes);
  RedisServer& late = fleet[2];
  granted(*holder, claim_on("k"));
  REQUIRE(eventually([&] { return stands_on_all(fleet, "k"); }));
  late.command({"DEL", "dlock:{k}", "dlock:{k}:fence"});
  late.stop();
  CHECK(refused(*store, claim_on("k")).why == Refusal::Reason::held);
  late.cont();
  // The fence that it raised shows that it has voted for a moment.
  REQUIRE(eventually([&] { return late.command({"EXISTS", "dlock:{k}:fence"}).number == 1; }));
  CHECK(eventually(
      [&] {
        return late.command({"EXISTS", "dlock:{k}"}).number == 0;
      },
      long_ttl / 2));
}

TEST_CASE("an eviction frees a server that is farther than the others, too") {
  constexpr milliseconds each_way{200};
  std::array<RedisServer, 3> fleet;
  const std::vector<Address> near = ready(fleet);
  FaultProxy proxy(near[2]);
  const std::vector<Address> far{near[0], near[1], proxy.address()};
  // On a busy machine, the far server may exceed the wait for it, but not every time.
  CHECK(in_one_of(3, [&] {
    const Claim claim = claim_on("k");
    Exchanges of_holder(3), of_evictor(3);
    const StorePtr holder = counted_majority(near, of_holder);
    granted(*holder, claim);
    REQUIRE(eventually([&] { return stands_on_all(fleet, "k"); }));
    proxy.delay(Direction::requests, each_way);
    proxy.delay(Direction::replies, each_way);
    const auto evicted =
        counted_majority(far, of_evictor)->evict(claim.key, {std::nullopt, evictor}, soon());
    REQUIRE(evicted.size() == 1);
    CHECK(evicted[0].owner == claim.owner.text);
    // The hold leaves a tombstone.
    const bool is_free = eventually([&] { return holders_at(fleet[2], "k") == 0; }, each_way * 4);
    proxy.heal();
    release(*holder, claim);
    return is_free;
  }));
}

TEST_CASE("three clients with a vote of three servers each see that the votes are split") {
  // On a busy machine, a vote may be a second old when the others see it: they take it for a lock
  // and release their own votes.
  CHECK(in_one_of(3, three_see_the_split));
}

TEST_CASE("votes that were split are released, and each of three has the lock in its turn") {
  SplitVotes votes;
  votes.keep_apart();
  std::list<LockAcquirer<SplitVotes>> all;
  for (std::size_t i = 0; i < SplitVotes::size; ++i) {
    all.emplace_back([&votes, i] { return votes.open(i); }, std::vector{claim_on("k")});
  }
  votes.split();
  Deadline free_since{};
  while (!all.empty()) {
    auto winner = all.end();
    const auto one_has_it = [&] {
      winner =
          std::find_if(all.begin(), all.end(), [](const auto& each) { return each.has_ended(); });
      return winner != all.end();
    };
    REQUIRE(eventually(one_has_it));
    const auto held = had(winner->result());
    CHECK(winner->ended() > free_since);
    CHECK(std::count_if(all.begin(), all.end(),
                        [](const auto& each) { return each.has_ended(); }) == 1);
    free_since = BootClock::now();
    release_all(*winner->store, held, milliseconds(5000));
    all.erase(winner);
  }
}

}  // namespace dlock::test
