#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "client.hpp"
#include "storm.hpp"
#include "support/stall_witness.hpp"
#include "witness.hpp"

namespace dlock::test {
namespace {

constexpr int clients_of_each_lock = 7;
constexpr int clients_of_semaphore = 6;
constexpr std::size_t seats = 3;

/// The longest wait for a new holder once servers are back, on a busy machine.
constexpr milliseconds long_time{30'000};

FleetOptions five() {
  FleetOptions options;
  options.keeping = {Keeping::aof_always, Keeping::aof_always, Keeping::aof_always,
                     Keeping::aof_everysec, Keeping::nothing};
  options.clocked = {1, 2};
  options.on_port = {0, 2, 4};
  return options;
}

std::string counted(const std::map<std::string, int>& counts) {
  std::ostringstream text;
  for (const auto& [name, count] : counts)
    text << (text.tellp() > 0 ? ", " : "") << name << ' ' << count;
  return text.str();
}

/// Twenty clients of three locks, each in a thread of its own, and a witness for each of the first
/// two locks.
class Crowd {
 public:
  Crowd(const FleetScene& scene, std::uint64_t seed) : scene_(scene) {
    for (int i = 0; i < clients_of_each_lock; ++i) {
      add(++seed, "a", {});
      add(++seed, "b", {});
    }
    for (int i = 0; i < clients_of_semaphore; ++i) {
      add(++seed, "s", {"--limit", std::to_string(seats)});
    }
    for (auto& client : clients_) {
      threads_.emplace_back([&] { client->work_until(end_); });
    }
    for (const char* const key : {"a", "b"}) {
      witnesses_.try_emplace(key, scene.fleet, ++seed, key);
    }
  }

  ~Crowd() { stop(); }

  void stop() {
    end_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    for (auto& [key, witness] : witnesses_) witness.stop();
  }

  /// All known grants of a key; those by `acquire` only after stop().
  std::vector<Held> history(const std::string& key) const {
    const std::string log = beats_of(scene_, key);
    std::vector<Held> all = held_in(scene_.has("beats-" + key) ? read_file(log) : "");
    for (const auto& client : clients_) {
      if (!end_ || client->key() != key) continue;
      all.insert(all.end(), client->held().begin(), client->held().end());
    }
    const auto witness = witnesses_.find(key);
    if (end_ && witness != witnesses_.end()) {
      const auto& held = witness->second.held();
      all.insert(all.end(), held.begin(), held.end());
    }
    return apart_from_stalls(std::move(all), machine_.stalls());
  }

  std::map<std::string, int> outcomes() const {
    std::map<std::string, int> all;
    for (const auto& client : clients_) {
      for (const auto& [name, count] : client->outcomes()) all[name] += count;
    }
    return all;
  }

  std::vector<std::string> troubles() const {
    std::vector<std::string> all;
    for (const auto& client : clients_) {
      all.insert(all.end(), client->troubles().begin(), client->troubles().end());
    }
    return all;
  }

  /// How many of the witnesses' grants took one exchange with the servers.
  std::string share() const {
    int grants = 0, of_one = 0;
    for (const auto& [key, witness] : witnesses_) {
      for (const auto& [exchanges, count] : witness.exchanges()) {
        grants += count;
        if (exchanges == 1) of_one += count;
      }
    }
    return std::to_string(of_one) + " of " + std::to_string(grants);
  }

 private:
  void add(std::uint64_t seed, const std::string& key, std::vector<std::string> flags) {
    clients_.push_back(std::make_unique<Client>(scene_, seed, key, std::move(flags)));
  }

  const Scene& scene_;
  StallWitness machine_;
  std::atomic<bool> end_ = false;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::thread> threads_;
  std::map<std::string, Witness> witnesses_;
};

std::size_t begun_since(const Crowd& crowd, const std::string& key, Deadline since) {
  const auto all = crowd.history(key);
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const Held& held) {
    return held.first_ns > since.time_since_epoch().count();
  }));
}

/// The clients that surely held after all leases from before the outage must have ended.
std::vector<std::string> held_in(const Crowd& crowd, const std::string& key,
                                 const Storm::Outage& outage) {
  const auto from = later(outage.from, longest_ttl).time_since_epoch().count();
  const auto to = outage.to.time_since_epoch().count();
  std::vector<std::string> all;
  if (to <= from) return all;  // earlier holders may hold on
  for (const Held& held : crowd.history(key)) {
    if (held.vague || held.last_ns <= from || held.first_ns >= to) continue;
    const auto ms = [&](std::int64_t ns) {
      return std::to_string((ns - outage.from.time_since_epoch().count()) / 1'000'000);
    };
    all.push_back(key + ": " + held.who + " from " + ms(held.first_ns) + " to " + ms(held.last_ns) +
                  " ms of an outage of " + ms(to) + " ms");
  }
  return all;
}

void check_history(const Crowd& crowd, const std::string& key) {
  const auto history = crowd.history(key);
  const Verdict verdict = judge(history);
  for (const auto& each : verdict.overlaps) CHECK_MESSAGE(false, key << " overlap: " << each);
  for (const auto& each : verdict.duplicates) CHECK_MESSAGE(false, key << " twice: " << each);
  for (const auto& each : verdict.inversions) CHECK_MESSAGE(false, key << " inverted: " << each);
  const auto vague =
      std::count_if(history.begin(), history.end(), [](const Held& held) { return held.vague; });
  MESSAGE(key << ": " << history.size() << " grants, of which " << vague << " of unknown end; "
              << verdict.overlaps.size() << " overlaps, " << verdict.duplicates.size()
              << " duplicate and " << verdict.inversions.size() << " inverted fences");
}

}  // namespace

TEST_CASE("twenty clients of five servers under fire: never two at once, and fences that grow") {
  const auto length = length_of_this_run(std::chrono::seconds(60));
  const std::uint64_t seed = seed_of_this_run();
  MESSAGE("DLOCK_TEST_SEED=" << seed);
  const FleetScene scene(five());
  Chance chance(seed);
  Storm storm(scene.fleet, chance);
  Crowd crowd(scene, seed);

  storm.harm_minority(later(BootClock::now(), length * 2 / 3));
  std::size_t of_minority = 0;
  for (const char* const key : {"a", "b"}) of_minority += crowd.history(key).size();
  CHECK(of_minority > static_cast<std::size_t>(length.count() / 8));

  std::vector<Storm::Outage> outages;
  std::vector<double> back_after;
  const auto end = later(BootClock::now(), length / 3);
  while (BootClock::now() < end) {
    outages.push_back(storm.harm_majority(chance.between(milliseconds(500), milliseconds(5000))));
    const auto mended = BootClock::now();
    CHECK(eventually([&] { return begun_since(crowd, "a", mended) > 0; }, long_time));
    back_after.push_back(std::chrono::duration<double>(BootClock::now() - mended).count());
    chance.pause_up_to(milliseconds(1500));
  }
  storm.empty_majority();
  const auto emptied = BootClock::now();
  std::this_thread::sleep_for(longest_ttl * 2);
  crowd.stop();

  // A client that was granted the lock earlier may begin its command until the lease ends.
  for (const char* const key : {"a", "b", "s"}) {
    CHECK(begun_since(crowd, key, later(emptied, longest_ttl)) == 0);
  }
  MESSAGE(of_minority << " commands begun on two locks with a minority of servers in trouble");
  MESSAGE("harm: " << counted(storm.harms()) << "; outages " << outages.size()
                   << ", the first command after the longest of them within "
                   << *std::max_element(back_after.begin(), back_after.end()) << " s");
  MESSAGE("ended: " << counted(crowd.outcomes()));
  MESSAGE(crowd.share() << " grants to witnesses took one exchange with the servers");
  for (const char* const key : {"a", "b"}) check_history(crowd, key);
  const auto semaphore = crowd.history("s");
  MESSAGE("s: " << semaphore.size() << " grants, " << most_at_once(semaphore)
                << " at once at most");
  CHECK(most_at_once(semaphore) <= seats);
  for (const char* const key : {"a", "b", "s"}) {
    for (const auto& outage : outages) {
      for (const std::string& each : held_in(crowd, key, outage)) CHECK(each == "");
    }
  }
  for (const std::string& trouble : crowd.troubles()) CHECK(trouble == "");
  for (const char* const command : {"run", "acquire", "renew", "release"}) {
    CHECK(crowd.outcomes()[std::string(command) + " 0"] > 0);
  }
}

}  // namespace dlock::test
