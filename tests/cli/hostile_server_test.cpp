#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "cli/lied_to.hpp"
#include "support/chance.hpp"
#include "support/dlock_binary.hpp"
#include "support/fake_server.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

/// Of the lies each point gets one of so many in a quick run, and its neighbours the others.
constexpr std::size_t stride = 12;

/// The stacks of threads are data: with the usual 8 MiB each a majority would start none.
void limit_data_to(rlim_t bytes) {
  const rlimit most{bytes, bytes}, stack{1UL << 20, 1UL << 20};
  setrlimit(RLIMIT_DATA, &most);
  setrlimit(RLIMIT_STACK, &stack);
}

/// As much as dlock may take for its own data, whatever a server sends.
void limit_data() { limit_data_to(16UL << 20); }

/// The same together with a library, which doubles what it has when more comes.
void limit_data_of_library() { limit_data_to(32UL << 20); }

/// A command that is lied to. A word that is one capital letter stands for the key of that letter;
/// HELD, for one that another holds.
struct CommandLiedTo {
  std::vector<std::string> words;
  milliseconds within{0};  ///< how long it may take, whatever the server says or does not say
  bool needs_hold = false;
};

/// A server that is silent for 5 s, or a sixth of the ttl, counts as unreachable.
constexpr milliseconds silent{5000}, ttl{1200};

const std::vector<CommandLiedTo>& commands_of_all() {
  static const std::vector<CommandLiedTo> all{
      {{"run", "-n", "-t", "1200ms", "-k", "A", "--", "touch", "MARK"}, ttl * 2},
      {{"run", "-w", "1", "-t", "1200ms", "-k", "A", "-k", "B", "--", "touch", "MARK"}, ttl * 3},
      {{"run", "-n", "-t", "1200ms", "-k", "HELD", "--", "touch", "MARK"}, ttl * 2},
      {{"run", "-w", "1", "-t", "1200ms", "-k", "HELD", "--", "touch", "MARK"}, ttl * 3},
      {{"acquire", "-n", "-t", "1200ms", "A"}, ttl * 2},
      {{"renew", "A", "-t", "1200ms", "--token", "TOKEN"}, silent + ttl, true},
      {{"release", "A", "--token", "TOKEN"}, silent * 2, true},
      {{"release", "A", "--force"}, silent * 2, true},
      {{"inspect", "A"}, silent * 2, true},
      {{"latch", "open", "-k", "L", "--count", "2"}, silent * 2},
      {{"doctor"}, silent * 2},
  };
  return all;
}

const std::vector<CommandLiedTo>& commands_of_redis() {
  static const std::vector<CommandLiedTo> all{
      {{"inspect"}, silent * 2, true},
      {{"inspect", "--all-kinds"}, silent * 2, true},
      {{"run", "--compat", "redis-py", "-n", "-t", "1200ms", "-k", "C", "--", "touch", "MARK"},
       ttl * 2},
      {{"run", "--compat", "redisson", "-n", "-t", "1200ms", "-k", "C", "--", "touch", "MARK"},
       ttl * 2},
  };
  return all;
}

/// Nothing that a terminal would obey.
bool is_plain(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
  });
}

struct Told {
  std::size_t replies = 0;
  bool complained = false;
  std::vector<std::string> faults;
};

std::string token_of_hold(const LiedTo& place, const std::string& key) {
  ProcessOptions options;
  options.env["DLOCK_SERVER"] = place.direct_url();
  std::string token = dlock({"acquire", "-n", "-t", "60s", key}, options).out;
  while (!token.empty() && token.back() == '\n') token.pop_back();
  return token;
}

bool has_word(const CommandLiedTo& command, const std::string& word) {
  return std::find(command.words.begin(), command.words.end(), word) != command.words.end();
}

/// The words of the command, once what it needs is there.
std::vector<std::string> prepare(const CommandLiedTo& command, const LiedTo& place,
                                 const std::string& mark) {
  place.clear();
  std::string token = "t";
  if (command.needs_hold) token = token_of_hold(place, place.key('a'));
  if (has_word(command, "HELD")) token = token_of_hold(place, place.key('h'));
  auto words = command.words;
  for (std::string& word : words) {
    if (word == "MARK") word = mark;
    if (word == "TOKEN") word = token.empty() ? "t" : token;
    if (word == "HELD") word = place.key('h');
    if (word.size() == 1 && word[0] >= 'A' && word[0] <= 'Z') {
      word = place.key(static_cast<char>(word[0] - 'A' + 'a'));
    }
  }
  return words;
}

/// What a run has shown that dlock must never show.
std::vector<std::string> faults_of(const Result& result, const CommandLiedTo& command,
                                   const LiedTo& place, LyingRelay& relay, bool ran) {
  static const std::set<int> documented{0, 1, 2, 65, 69, 71, 75, 77, 79};
  std::vector<std::string> wrong;
  if (documented.count(result.exit_code) == 0) wrong.emplace_back("its exit");
  if (!is_plain(result.out) || !is_plain(result.err)) wrong.emplace_back("control characters");
  // The libraries of databases refuse large lengths in their own words, which have "memory", too.
  if (result.err.find("ut of memory") != std::string::npos) {
    wrong.emplace_back("it took too much memory");
  }
  if (result.duration > stretched(command.within)) wrong.emplace_back("it took too long");
  const bool believes = has_word(command, "--compat") || !lies_in_resp();
  const bool was_granted = believes || relay.told_of_grant() >= place.needed();
  const bool is_held = has_word(command, "HELD");
  if (ran && (is_held || !was_granted)) wrong.emplace_back("it ran without a grant");
  const bool acquired = command.words[0] == "acquire" && result.exit_code == 0;
  if (acquired && !was_granted) wrong.emplace_back("it acquired without a grant");
  return wrong;
}

/// One run against a relay that lies by this plan.
Told lie_to(const CommandLiedTo& command, const LiePlan& plan, const LiedTo& place) {
  const TempDir dir;
  const std::string mark = dir / "mark";
  const auto words = prepare(command, place, mark);
  LyingRelay relay(place.servers(), plan);
  ProcessOptions options;
  options.env["DLOCK_SERVER"] = place.url(relay.addresses());
  options.before_exec = lies_in_resp() ? limit_data : limit_data_of_library;
  Result result;
  try {
    result = start_dlock(words, options).wait(silent * 8);
  } catch (const Error& stuck) {
    result.err = stuck.what();
  }
  Told told;
  const bool ran = access(mark.c_str(), F_OK) == 0;
  for (const std::string& wrong : faults_of(result, command, place, relay, ran)) {
    std::string text =
        wrong + " after " +
        std::to_string(std::chrono::duration_cast<milliseconds>(result.duration).count()) +
        " ms: reply " + std::to_string(plan.at) + (plan.goes_on ? " and all later ones" : "") +
        " was " + (plan.lie == nullptr ? "true" : plan.lie->name) + ", exit " +
        std::to_string(result.exit_code) + ", signal " + std::to_string(result.signal) + ":";
    for (const std::string& word : words) text += " " + word;
    told.faults.push_back(text + "\n" + result.err);
  }
  told.replies = relay.replies();
  told.complained = !result.err.empty();
  return told;
}

struct Trial {
  const CommandLiedTo* command;
  LiePlan plan;
};

struct Trials {
  std::size_t done = 0, complained = 0;
  std::vector<std::string> faults;
};

/// Runs them in turn, many at once, as most of them mostly wait, and begins none after `end`.
Trials run_trials(const std::vector<Trial>& trials, Deadline end) {
  const int threads = tells_all_lies() ? 60 : 20;
  std::mutex mutex;
  Trials all;
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      const auto place = new_lied_to();
      for (std::size_t mine = next++; mine < trials.size() && BootClock::now() < end;
           mine = next++) {
        const Told told = lie_to(*trials[mine].command, trials[mine].plan, *place);
        const std::scoped_lock lock(mutex);
        ++all.done;
        all.complained += told.complained ? 1 : 0;
        all.faults.insert(all.faults.end(), told.faults.begin(), told.faults.end());
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  return all;
}

/// Every lie at every point of the command, or each at every twelfth.
void add_trials(const CommandLiedTo& command, LiePlan plan, std::size_t replies,
                const std::vector<Lie>& lies, std::vector<Trial>& trials) {
  for (plan.at = 1; plan.at <= replies; ++plan.at) {
    const std::size_t step = tells_all_lies() ? 1 : stride;
    for (std::size_t i = plan.at % step; i < lies.size(); i += step) {
      plan.lie = &lies[i];
      trials.push_back({&command, plan});
      if (!tells_all_lies()) continue;
      plan.goes_on = true;
      trials.push_back({&command, plan});
      plan.goes_on = false;
    }
  }
}

TEST_CASE("hostile server: one false reply at any point of any command breaks no promise") {
  const auto place = new_lied_to();
  if (place == nullptr) {
    MESSAGE("skipped: " << lied_to_kind() << " is not installed");
    return;
  }
  FakeServer other_server({silence()}, true);
  auto lies = lies_in_resp() ? resp_lies(other_server.address()) : blind_lies();
  if (place->needed() > 1) lies.push_back(lie_of_grant());
  auto commands = commands_of_all();
  const bool one_redis = lied_to_kind().empty() || lied_to_kind() == "redis";
  if (one_redis) {
    commands.insert(commands.end(), commands_of_redis().begin(), commands_of_redis().end());
  }
  std::vector<Trial> trials;
  std::vector<std::string> faults;
  for (const CommandLiedTo& each : commands) {
    const Told honest = lie_to(each, place->plan(), *place);
    CAPTURE(each.words[0]);
    CHECK(honest.replies > 0);
    faults.insert(faults.end(), honest.faults.begin(), honest.faults.end());
    add_trials(each, place->plan(), honest.replies, lies, trials);
  }
  for (const std::string& fault : faults) CHECK_MESSAGE(false, "where nobody lies: " << fault);
  const std::uint64_t seed = seed_of_this_run();
  Chance chance(seed);
  std::shuffle(trials.begin(), trials.end(), chance.engine());
  const auto length = length_of_this_run(std::chrono::hours(1));
  const Trials told = run_trials(trials, BootClock::now() + length);
  MESSAGE(told.done << " of " << trials.size() << " lies told, dlock named " << told.complained
                    << ", seed " << seed);
  for (const std::string& fault : told.faults) CHECK_MESSAGE(false, fault);
  CHECK(told.done > 0);
  CHECK(told.complained > told.done / 10);
  // Only a Cluster, and a Sentinel that names it, sends a client to another server.
  if (one_redis || place->needed() > 1) CHECK(other_server.connections() == 0);
}

}  // namespace
}  // namespace dlock::test
