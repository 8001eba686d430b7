#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "support/chance.hpp"
#include "support/scene.hpp"

namespace dlock::test {
namespace {

constexpr milliseconds ttl{500};
constexpr milliseconds end_time{30'000};

/// The time that a run takes to start and to end, and a little more.
constexpr microseconds a_short_life = microseconds(12'000) * slower;

[[noreturn]] void fail_end(const std::string& what) { throw Error(ErrorKind::bug, what); }

/// One run that is ended somehow, from its start until nothing is left of it.
class Mishap {
 public:
  Mishap(const Scene& scene, Chance& chance, int number)
      : scene_(scene),
        chance_(chance),
        key_("k" + std::to_string(number)),
        load_before_(stretched(milliseconds(1))) {}

  void happen();
  const std::string& key() const { return key_; }

 private:
  std::string acquired();
  Process start();
  void send_a_signal(const Process& job);
  void check_end(const Result& end);

  const Scene& scene_;
  Chance& chance_;
  std::string key_;
  milliseconds load_before_;
  StallWitness witness_;
  bool ends_by_itself_ = false;
  bool to_command_ = false;
  int signal_ = 0;
};

std::string Mishap::acquired() {
  const Result token = scene_.run({"acquire", "-k", key_, "-t", "60"});
  if (token.exit_code != 0) fail_end("acquire: " + token.err);
  return token.out.substr(0, token.out.find('\n'));
}

Process Mishap::start() {
  ends_by_itself_ = chance_.up_to(2) == 0;
  const std::string rest =
      ends_by_itself_ ? "sleep 0.00" + std::to_string(chance_.up_to(9)) : "sleep 60";
  return scene_.start({"run", "-q", "-t", std::to_string(ttl.count()) + "ms", "-k", key_, "--",
                       "sh", "-c", "echo $$; exec " + rest});
}

/// Sends a signal to dlock, or to the command if that runs by then.
void Mishap::send_a_signal(const Process& job) {
  const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGKILL, SIGKILL};
  signal_ = signals[chance_.up_to(6)];
  const std::string told = job.out();
  to_command_ = chance_.up_to(2) == 0 && told.ends_with("\n");
  if (to_command_) {
    kill(static_cast<pid_t>(std::stol(told)), signal_);
  } else {
    job.signal(signal_);
  }
}

void Mishap::check_end(const Result& end) {
  const bool as_sent = end.signal == signal_;
  const bool by_itself = ends_by_itself_ && end.exit_code == 0;
  // On a busy machine, or one that stalls, a server may be too slow for this lease.
  const milliseconds load = std::max(load_before_, stretched(milliseconds(1)));
  const bool is_busy = load > milliseconds(4) * slower || witness_.longest() > ttl / 5;
  const bool has_server = !scene_.url().starts_with("local:");
  const bool too_slow = is_busy && has_server && (end.exit_code == 69 || end.exit_code == 79);
  if (!as_sent && !by_itself && !too_slow)
    fail_end("signal " + std::to_string(signal_) + (to_command_ ? " to the command" : "") +
             " ends it with " + std::to_string(end.exit_code) + ", " + std::to_string(end.signal) +
             ": " + end.err);
}

/// A third of the runs must wait first; they are granted the lock while the signal comes, or never.
void Mishap::happen() {
  const bool waits = chance_.up_to(2) == 0;
  const std::string token = waits ? acquired() : "";
  Process job = start();
  std::optional<Process> release;
  if (waits) {
    if (chance_.up_to(2) > 0) eventually([&] { return scene_.waiting(key_) == 1; }, end_time);
    if (chance_.up_to(2) > 0) {
      release.emplace(scene_.start({"release", "-k", key_, "--token", token}));
    }
  }
  chance_.pause_up_to(a_short_life);
  send_a_signal(job);
  const bool to_end = !release && waits;
  check_end(job.wait(end_time));
  if (to_end) release.emplace(scene_.start({"release", "-k", key_, "--token", token}));
  if (release && release->wait(end_time).exit_code != 0) fail_end("release: " + release->err());
  if (!eventually([&] { return processes_of_session(job.pid()) == 0; }, end_time))
    fail_end("a process is left");
  const auto ended = BootClock::now();
  const Result next = scene_.run({"run", "-q", "-w", "20", "-k", key_, "--", "true"});
  if (next.exit_code != 0) fail_end("the next does not get in: " + next.err);
  // The limit is far above a lease, so that a busy machine is no failure.
  constexpr milliseconds most{10'000};
  if (BootClock::now() - ended >= most) fail_end("the lock was kept for longer than a lease");
}

std::vector<std::string> mishaps(const std::vector<std::unique_ptr<Scene>>& scenes) {
  const int count = runs_of_this_test(160);
  const std::uint64_t seed = seed_of_this_run();
  MESSAGE("DLOCK_TEST_SEED=" << seed);
  std::vector<std::string> troubles;
  std::mutex mutex;
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  for (const auto& scene : scenes) {
    threads.emplace_back([&] {
      for (int number = next++; number < count; number = next++) {
        try {
          Chance chance(seed + static_cast<std::uint64_t>(number));
          Mishap(*scene, chance, number).happen();
        } catch (const std::exception& error) {
          const std::lock_guard guard(mutex);
          troubles.push_back("run " + std::to_string(number) + ": " + error.what());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return troubles;
}

constexpr int workers = 8;

}  // namespace

TEST_CASE("local: runs ended at any moment by any signal leave no lock, file, process or zombie") {
  std::vector<std::unique_ptr<Scene>> scenes;
  for (int i = 0; i < workers; ++i) scenes.push_back(std::make_unique<LocalScene>());
  for (const std::string& trouble : mishaps(scenes)) CHECK(trouble == "");
  for (const auto& each : scenes) {
    const auto& scene = static_cast<const LocalScene&>(*each);
    // A run that is killed while it makes its mailbox leaves that, and a later new key removes it.
    scene.make_older(std::chrono::minutes(2));
    CHECK(scene.run({"run", "-q", "-n", "-k", "new", "--", "true"}).exit_code == 0);
    CHECK(times(scene.kept(), ".dlock") == times(scene.kept(), " ") + 1);
  }
}

TEST_CASE("Redis: runs ended at any moment by any signal leave no key, process or zombie") {
  std::vector<std::unique_ptr<Scene>> scenes;
  for (int i = 0; i < workers; ++i) {
    scenes.push_back(std::make_unique<RedisScene>());
    // From here on the server knows the script. Otherwise a client that is ended after the server
    // reports it missing, and before it is sent, leaves a tombstone for a minute.
    CHECK(scenes.back()->run({"run", "-q", "-k", "k0", "--", "true"}).exit_code == 0);
  }
  for (const std::string& trouble : mishaps(scenes)) CHECK(trouble == "");
  for (const auto& scene : scenes) {
    CHECK(eventually([&] { return times(scene->kept(), "}") == times(scene->kept(), "}:fence"); }));
  }
}

}  // namespace dlock::test
