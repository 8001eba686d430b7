// Tests locks in a database with an asynchronous standby, while servers, sessions and poolers fail.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "chaos/client.hpp"
#include "chaos/database_pair.hpp"
#include "support/installed.hpp"
#include "support/mariadb_server.hpp"
#include "support/pgbouncer.hpp"
#include "support/stall_witness.hpp"

namespace dlock::test {
namespace {

using Failovers = std::vector<DatabasePair::Failover>;

constexpr std::size_t permits = 3;

/// After a failover that lost commits, two clients may hold until the next renewal. A client that
/// does not renew, or does not stop when told to, may hold until the lease ends.
constexpr milliseconds longest_overlap = longest_ttl + milliseconds(1000);

class DatabaseScene final : public Scene {
 public:
  explicit DatabaseScene(std::unique_ptr<DatabasePair> of_test) : pair(std::move(of_test)) {}
  std::string url() const override { return pair->url(); }
  std::string kept() const override { return ""; }
  std::string may_stay(std::vector<std::string>) const override { return ""; }

  std::unique_ptr<DatabasePair> pair;
};

/// Twenty clients of three locks, half of them through the pooler.
class DatabaseCrowd {
 public:
  DatabaseCrowd(const DatabaseScene& scene, std::uint64_t seed) : scene_(scene) {
    for (int i = 0; i < 20; ++i) {
      const std::string key = i % 3 == 0 ? "a" : i % 3 == 1 ? "b" : "s";
      std::vector<std::string> flags;
      if (key == "s") flags = {"--limit", std::to_string(permits)};
      if (i % 2 == 0) flags.insert(flags.end(), {"--server", scene.pair->far_url()});
      clients_.push_back(std::make_unique<Client>(scene, ++seed, key, flags));
    }
    for (auto& client : clients_) {
      threads_.emplace_back([&] { client->work_until(end_); });
    }
  }
  ~DatabaseCrowd() { stop(); }

  void stop() {
    end_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  /// All known grants of a key; call it after stop().
  std::vector<Held> history(const std::string& key) const {
    auto all = held_in(scene_.has("beats-" + key) ? read_file(beats_of(scene_, key)) : "");
    for (const auto& client : clients_) {
      if (client->key() != key) continue;
      all.insert(all.end(), client->held().begin(), client->held().end());
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

 private:
  const DatabaseScene& scene_;
  StallWitness machine_;
  std::atomic<bool> end_ = false;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::thread> threads_;
};

std::int64_t moment_ns(Deadline moment) { return moment.time_since_epoch().count(); }

std::string counts(const std::map<std::string, int>& all) {
  std::ostringstream text;
  for (const auto& [name, count] : all)
    text << (text.tellp() > 0 ? ", " : "") << name << ' ' << count;
  return text.str();
}

/// Overlapping holds, sorted by whether a failover excuses them.
struct Overlaps {
  int excused = 0;
  milliseconds longest_after{0};  ///< the latest end of these after their failover
  std::vector<std::string> others{};
};

bool is_excused(const Held& earlier, const Held& later_one, const Failovers& failovers,
                Overlaps& found) {
  for (const auto& failover : failovers) {
    const bool across =
        earlier.first_ns < moment_ns(failover.to) && later_one.first_ns >= moment_ns(failover.from);
    const auto ends = std::min(earlier.last_ns, later_one.last_ns);
    if (!across || ends > moment_ns(later(failover.to, longest_overlap))) continue;
    ++found.excused;
    const std::chrono::nanoseconds after(ends - moment_ns(failover.to));
    found.longest_after = std::max(found.longest_after, std::chrono::ceil<milliseconds>(after));
    return true;
  }
  return false;
}

Overlaps overlaps_in(std::vector<Held> history, const Failovers& failovers) {
  std::erase_if(history, [](const Held& held) { return held.vague; });
  std::sort(history.begin(), history.end(),
            [](const Held& a, const Held& b) { return a.first_ns < b.first_ns; });
  Overlaps found;
  const Held* longest = nullptr;
  for (const Held& held : history) {
    const bool overlaps = longest != nullptr && held.first_ns < longest->last_ns;
    if (overlaps && !is_excused(*longest, held, failovers, found)) {
      found.others.push_back(longest->who + " until " + std::to_string(longest->last_ns) + ", " +
                             held.who + " from " + std::to_string(held.first_ns));
    }
    if (longest == nullptr || held.last_ns > longest->last_ns) longest = &held;
  }
  return found;
}

void check_key(const DatabaseCrowd& crowd, const std::string& key, const Failovers& failovers) {
  const auto history = crowd.history(key);
  const Verdict verdict = judge(history);
  const Overlaps overlaps = overlaps_in(history, failovers);
  for (const auto& each : overlaps.others) CHECK_MESSAGE(false, key << " overlap: " << each);
  for (const auto& each : verdict.duplicates) CHECK_MESSAGE(false, key << " twice: " << each);
  for (const auto& each : verdict.inversions) CHECK_MESSAGE(false, key << " inverted: " << each);
  CHECK(history.size() > 3);
  MESSAGE(key << ": " << history.size() << " grants, " << overlaps.others.size() << " overlaps, "
              << verdict.duplicates.size() << " repeated and " << verdict.inversions.size()
              << " smaller fences; " << overlaps.excused << " overlaps of failovers, until "
              << overlaps.longest_after.count() << " ms after them at most");
}

/// Removes the holds that a failover may have forgotten.
std::vector<Held> apart_from(std::vector<Held> history, const Failovers& failovers) {
  std::erase_if(history, [&](const Held& held) {
    return std::any_of(failovers.begin(), failovers.end(), [&](const auto& failover) {
      return held.last_ns > moment_ns(failover.from) &&
             held.first_ns < moment_ns(later(failover.to, longest_overlap));
    });
  });
  return history;
}

void burn(std::unique_ptr<DatabasePair> of_test) {
  const auto length = length_of_this_run(std::chrono::seconds(20));
  const std::uint64_t seed = seed_of_this_run();
  MESSAGE("DLOCK_TEST_SEED=" << seed);
  const DatabaseScene scene(std::move(of_test));
  DatabasePair& pair = *scene.pair;
  Chance chance(seed);
  DatabaseCrowd crowd(scene, seed);
  Failovers failovers;
  std::map<std::string, int> harms;
  const auto up_to = [&](int most) {
    return chance.between(milliseconds(100), milliseconds(most));
  };
  const std::vector<std::pair<std::string, std::function<void()>>> harm{
      {"sessions killed", [&] { pair.kill_sessions(); }},
      {"pooler restarted", [&] { pair.restart_pooler(); }},
      {"primary stopped", [&] { pair.stop_primary(up_to(4000)); }},
      {"primary killed", [&] { pair.restart_primary(); }},
      {"failover", [&] { failovers.push_back(pair.fail_over(up_to(1500))); }}};
  const auto end = later(BootClock::now(), length);
  // Each kind of harm comes once in its turn, and then in any order.
  for (std::size_t i = 0; BootClock::now() < end; ++i) {
    const auto any = static_cast<std::size_t>(chance.up_to(static_cast<int>(harm.size()) - 1));
    const auto& [name, befall] = harm[i < harm.size() ? i : any];
    chance.pause_up_to(milliseconds(2500));
    befall();
    ++harms[name];
  }
  std::this_thread::sleep_for(longest_ttl);
  crowd.stop();
  const auto forgot = std::count_if(failovers.begin(), failovers.end(),
                                    [](const auto& failover) { return failover.forgot; });
  MESSAGE("harm: " << counts(harms) << "; " << forgot << " failovers forgot commits");
  MESSAGE("ended: " << counts(crowd.outcomes()));
  for (const char* const key : {"a", "b"}) check_key(crowd, key, failovers);
  const auto semaphore = apart_from(crowd.history("s"), failovers);
  MESSAGE("s: " << semaphore.size() << " grants apart from failovers, " << most_at_once(semaphore)
                << " at once at most");
  CHECK(most_at_once(semaphore) <= permits);
  for (const std::string& trouble : crowd.troubles()) CHECK(trouble == "");
  for (const char* const command : {"run", "acquire", "renew", "release"}) {
    CHECK(crowd.outcomes()[std::string(command) + " 0"] > 0);
  }
}

}  // namespace

TEST_CASE(
    "twenty clients of PostgreSQL under fire: two at once only after a failover, for moments") {
  if (is_missing<PgBouncer>()) return;
  burn(postgres_pair());
}

TEST_CASE("twenty clients of MariaDB under fire: two at once only after a failover, for moments") {
  if (is_missing<MariaDbServer>()) return;
  burn(mariadb_pair());
}

}  // namespace dlock::test
