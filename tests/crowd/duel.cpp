#include "duel.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "support/dlock_binary.hpp"

namespace dlock::test {
namespace {

/// The limit for everything that must happen, on a busy machine.
constexpr milliseconds long_time{30'000};

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::bug, what); }

/// The time of the grant, since a fence is the server's clock at the grant.
Deadline granted_at(std::int64_t fence) { return Deadline(microseconds(fence) - wall_ahead()); }

/// Thrown if the machine was too slow for a short ttl before anything was tested.
struct TooSlow {};

/// Throws if the process found no server in time, or lost the lock although nothing was done to it.
void throw_if_too_slow(Process& process) {
  if (process.running()) return;
  const int code = process.wait().exit_code;
  if (code == 69 || code == 79) throw TooSlow();
}

std::string end_of(Process& process) {
  if (process.running()) return "it runs, and says: " + process.err();
  const Result result = process.wait();
  return "exit code " + std::to_string(result.exit_code) + ", signal " +
         std::to_string(result.signal) + ": " + result.err;
}

std::set<pid_t> pids_of(const std::vector<Beat>& beats) {
  std::set<pid_t> pids;
  for (const Beat& beat : beats) pids.insert(static_cast<pid_t>(beat.pid));
  return pids;
}

Deadline moment(std::int64_t ns) { return Deadline(std::chrono::nanoseconds(ns)); }

}  // namespace

Duel::Duel(Arena& arena, Chance& chance, std::string key, const Rules& rules)
    : arena_(arena),
      chance_(chance),
      rules_(rules),
      freezer_(rules.in_freezer ? Freezer::make() : std::nullopt),
      key_(std::move(key)),
      ttl_(chance.between(milliseconds(300), milliseconds(900))),
      first_(start("first", arena.scene.url(), manners())),
      second_([&] {
        const bool begun = wait_for_first();
        if (!begun) throw_if_too_slow(first_);
        if (!begun) fail("the first does not begin: " + end_of(first_));
        command_ = static_cast<pid_t>(beats("first").front().pid);
        return start("second", arena.scene.server.url(), {});
      }()) {
  // On a busy machine the first may have lost the lock by now.
  const auto seen = [&] { return says_that_it_waits(second_) || second_is_in(); };
  eventually([&] { return seen() || !second_.running(); }, long_time);
  if (seen()) return;
  throw_if_too_slow(second_);
  fail("the second does not queue up: " + end_of(second_));
}

Duel::~Duel() {
  if (freezer_) freezer_->thaw();
  for (const char* const name : {"first", "second"}) unlink(file(name).c_str());
}

std::string Duel::file(const std::string& name) const {
  return arena_.scene.path(key_ + "-" + name);
}

/// Some commands ignore TERM, so that they live until they are killed. Some never sleep, to keep
/// the machine busy.
std::vector<std::string> Duel::manners() {
  std::vector<std::string> words;
  if (rules_.with_daemon) words.emplace_back("daemon");
  if (rules_.with_daemon || chance_.up_to(1) == 0) words.emplace_back("stubborn");
  if (chance_.up_to(5) == 0) words.emplace_back("spin");
  return words;
}

Process Duel::start(const std::string& name, const std::string& url,
                    std::vector<std::string> words) {
  std::vector<std::string> arguments{"run",
                                     "-t",
                                     std::to_string(ttl_.count()) + "ms",
                                     "-k",
                                     key_,
                                     "--server",
                                     url,
                                     "--",
                                     DLOCK_HEART,
                                     file(name),
                                     file("resource")};
  arguments.insert(arguments.end(), words.begin(), words.end());
  ProcessOptions options = arena_.scene.options();
  if (freezer_ && name == "first") options.before_exec = [this] { freezer_->join(); };
  return start_dlock(arguments, options);
}

std::vector<Beat> Duel::beats(const std::string& name) const {
  if (access(file(name).c_str(), F_OK) != 0) return {};
  const std::string bytes = read_file(file(name));
  std::vector<Beat> all(bytes.size() / sizeof(Beat));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), all.size() * sizeof(Beat));
  return all;
}

void Duel::pause(double least, double most) {
  const auto ms = [&](double ttls) {
    return milliseconds(static_cast<int>(ttls * static_cast<double>(ttl_.count())));
  };
  std::this_thread::sleep_for(chance_.between(ms(least), ms(most)));
}

bool Duel::wait_for_first() const {
  // The daemon counts, too: otherwise the test could act before it has written anything.
  const std::size_t expected = rules_.with_daemon ? 2 : 1;
  const auto begun = [&] { return pids_of(beats("first")).size() == expected; };
  eventually([&] { return begun() || !first_.running(); }, long_time);
  return begun();
}

bool Duel::second_is_in() const { return !beats("second").empty(); }

void Duel::wait_for_second() {
  eventually([&] { return second_is_in() || !second_.running(); }, long_time);
  if (second_is_in()) return;
  throw_if_too_slow(second_);
  fail("the second does not get in: " + end_of(second_));
}

void Duel::end_first() {
  if (first_.running()) first_.signal(SIGUSR1);
  const Result result = first_.wait(long_time);
  if (result.exit_code != 79 && result.signal != SIGUSR1)
    fail("the first ends with " + end_of(first_));
}

void Duel::check_kept() {
  throw_if_too_slow(first_);
  if (!second_is_in()) return;
  // If the machine kept the first from renewing, it may be about to find that out.
  eventually([&] { return !first_.running(); }, long_time);
  throw_if_too_slow(first_);
  fail("the lock was not kept");
}

void Duel::first_loses() {
  const Result result = first_.wait(long_time);
  if (result.exit_code != 79) fail("the first ends with " + end_of(first_));
}

Duel::Outcome Duel::outcome() {
  constexpr std::size_t some = 20;
  wait_for_second();
  first_.wait(long_time);
  eventually([&] { return beats("second").size() >= some || !second_.running(); }, long_time);
  second_.signal(SIGTERM);
  const Result end = second_.wait(long_time);
  if (end.signal != SIGTERM && end.exit_code != 79) fail("the second ends with " + end_of(second_));

  const auto old = beats("first");
  const auto fresh = beats("second");
  const Deadline grant = granted_at(fresh.front().fence);
  Outcome outcome;
  outcome.last_beat =
      moment(std::max_element(old.begin(), old.end(), [](const Beat& a, const Beat& b) {
               return a.before_ns < b.before_ns;
             })->before_ns);
  outcome.margin = grant - outcome.last_beat;
  const std::set<pid_t> pids = pids_of(old);
  for (const Beat& beat : old) {
    if (moment(beat.before_ns) > grant) ++outcome.late;
    const bool after_a_write = beat.before_ns > fresh.front().after_ns;
    if (after_a_write && beat.accepted != 0) ++outcome.late_taken;
  }
  if (fresh.front().fence <= old.front().fence)
    fail("the second has no larger fence than the first");
  if (std::any_of(fresh.begin(), fresh.end(), [](const Beat& beat) { return beat.accepted == 0; }))
    fail("the resource refuses the second");
  if (std::any_of(pids.begin(), pids.end(), is_alive))
    fail("of the first's command something lives");
  if (pids.size() != (rules_.with_daemon ? 2 : 1)) fail("the daemon did not begin");
  return outcome;
}

namespace {

Duel::Outcome one_duel(const std::function<void(Duel&)>& story, const Rules& rules,
                       std::unique_ptr<Arena>& arena, std::uint64_t seed, const std::string& key) {
  constexpr int attempts = 10;
  constexpr int may_be_late = 2;
  int late = 0;
  Duel::Outcome outcome;
  for (int attempt = 1; attempt <= attempts; ++attempt) {
    try {
      if (!arena) arena = std::make_unique<Arena>();
      arena->proxy.heal();  // undoes the harm of an attempt that was too slow
      Chance chance(seed);
      Duel duel(*arena, chance, key + "." + std::to_string(attempt), rules);
      story(duel);
      outcome = duel.outcome();
      // A busy machine may make dlock late for a short lease, but not again and again.
      const bool is_late = rules.apart && outcome.margin <= std::chrono::nanoseconds(0);
      if (is_late && outcome.late_taken == 0 && ++late <= may_be_late) throw TooSlow();
      return outcome;
    } catch (const TooSlow&) {
      outcome.trouble = "the machine is too slow for this test";
    } catch (const std::exception& error) {
      outcome.trouble = error.what();
      break;
    }
  }
  arena.reset();  // the rest of a failure must not reach the next duel
  return outcome;
}

}  // namespace

std::vector<Duel::Outcome> duels(const std::function<void(Duel&)>& story, const Rules& rules) {
  constexpr int most_at_once = 10;
  const int count = runs_of_this_test(20);
  const std::uint64_t seed = seed_of_this_run();
  MESSAGE("DLOCK_TEST_SEED=" << seed);
  std::vector<Duel::Outcome> all(static_cast<std::size_t>(count));
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < std::min(count, most_at_once); ++i) {
    threads.emplace_back([&] {
      std::unique_ptr<Arena> arena;
      for (int number = next++; number < count; number = next++) {
        all[static_cast<std::size_t>(number)] =
            one_duel(story, rules, arena, seed + static_cast<std::uint64_t>(number),
                     "k" + std::to_string(number));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

}  // namespace dlock::test
