#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "support/dlock_binary.hpp"
#include "support/fleet.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

/// A generous timeout for a busy machine.
constexpr milliseconds long_time{30'000};

const char* const script =
    "\"$STAMP\" \"$LOG\" start k 1; while [ $((i += 1)) -lt 12000 ]; do \"$STAMP\" \"$LOG\" beat k "
    "1; "
    "sleep 0.01; done";

std::size_t lines_of_log(const Scene& scene) { return count_lines(read_file(scene.log())); }

/// A job of key k whose command beats, and whose hold, without `compat`, is on all servers: a
/// majority would let it begin, and a fault of one more server would then be a fault of too many.
Process beating(const FleetScene& scene, const std::string& ttl,
                const std::vector<std::string>& compat = {}) {
  std::vector<std::string> words{"run", "-t", ttl, "-k", "k", "--", "sh", "-c", script};
  words.insert(words.begin() + 1, compat.begin(), compat.end());
  const auto begun = [&] {
    const bool on_all = !compat.empty() || held_on(scene.fleet, "k") == scene.fleet.size();
    return lines_of_log(scene) > 1 && on_all;
  };
  return patient_start([&] { return scene.start(words); }, begun, "the job did not begin");
}

/// The later end of the lease of k on servers 3 and 4; nothing if the machine gave its holder no
/// time to renew it.
std::optional<Deadline> last_end(const Fleet& fleet) {
  const auto one = lease_end_if_held(fleet.server(3), "k");
  const auto other = lease_end_if_held(fleet.server(4), "k");
  return one && other ? std::max(one, other) : std::nullopt;
}

/// Waits until the hold has been renewed or rewritten on this server.
bool is_renewed(const Fleet& fleet, std::size_t i) {
  const std::string before = stored_hold(fleet.server(i));
  return eventually(
      [&] {
        const std::string now = stored_hold(fleet.server(i));
        return !now.empty() && now != before;
      },
      milliseconds(15'000));
}

/// A server's failure: kill -9, or a stop.
enum class Blow { killed, stopped };

void strike(RedisServer& server, Blow blow) {
  blow == Blow::killed ? server.kill_hard() : server.stop();
}
void heal(RedisServer& server, Blow blow) {
  blow == Blow::killed ? server.restart() : server.cont();
}

struct Pair {
  std::size_t one;
  std::size_t other;
  Blow blow;
};

/// Makes these servers fail, and heals them once the job has outlived any earlier lease; false if
/// the lock was lost.
bool goes_on_without(const Fleet& fleet, const Process& job, const Pair& pair) {
  strike(fleet.server(pair.one), pair.blow);
  strike(fleet.server(pair.other), pair.blow);
  std::size_t third = 0;
  while (third == pair.one || third == pair.other) ++third;
  bool renewed = true;
  for (int i = 0; i < 2 && renewed; ++i) renewed = is_renewed(fleet, third);
  heal(fleet.server(pair.one), pair.blow);
  heal(fleet.server(pair.other), pair.blow);
  return renewed && is_renewed(fleet, pair.one) && is_renewed(fleet, pair.other) && job.running();
}

/// Runs a job on five servers while these pairs fail in turn; returns its result.
Result job_while_pairs_fail(const std::vector<Pair>& pairs) {
  FleetOptions options;
  options.keeping.assign(5, Keeping::aof_always);
  const FleetScene scene(options);
  Process job = beating(scene, "9");
  const bool lives = std::all_of(pairs.begin(), pairs.end(), [&](const Pair& pair) {
    return goes_on_without(scene.fleet, job, pair);
  });
  if (lives) job.signal(SIGTERM);
  return job.wait();
}

bool names_servers(const std::string& text, const std::vector<std::string>& urls) {
  return std::all_of(urls.begin(), urls.end(),
                     [&](const std::string& url) { return times(text, url) > 0; });
}

}  // namespace

TEST_CASE("majority: two of five servers that are killed or stopped do not disturb a job") {
  const std::vector<Pair> pairs{{0, 3, Blow::killed}, {1, 4, Blow::stopped}};
  Result result = job_while_pairs_fail(pairs);
  // On a busy machine, the job may lose such a short lease, but not again and again.
  for (int again = 0; result.exit_code == 79 && again < 2; ++again) {
    result = job_while_pairs_fail(pairs);
  }
  CAPTURE(result.err);
  CHECK(result.signal == SIGTERM);
  CHECK(times(result.err, "lost") == 0);
  CHECK(times(result.err, "k is held on 3 of 5 servers, and 3 are needed") >= pairs.size());
}

/// Whether a job is dead before its lease ends when three of five servers fail; the other two stay
/// as they were.
bool ends_in_time(const FleetScene& scene, Blow blow) {
  const Fleet& fleet = scene.fleet;
  Process job = beating(scene, "6");
  if (!is_renewed(fleet, 3)) return false;
  for (std::size_t i = 0; i < 3; ++i) strike(fleet.server(i), blow);
  // On a busy machine, one more renewal may have come before the failures.
  const auto end = last_end(fleet);
  if (!end) return false;
  const Result result = job.wait();
  CHECK(result.exit_code == 79);
  CHECK(times(result.err, "dlock: lost k: ") == 1);
  return tenures(scene.log()).back().end_ns < end->time_since_epoch().count();
}

TEST_CASE("majority: that three of five stand still stops the job before its lease ends, 79") {
  CHECK(unless_machine_stalls([] {
    const FleetScene scene;
    const bool in_time = ends_in_time(scene, Blow::stopped);
    const Result other = scene.run({"run", "-t", "6", "-k", "k", "--", "echo", "ran"});
    CHECK(other.exit_code == 69);
    CHECK(other.out == "");
    CHECK(times(other.err, "no majority of 5 servers") == 1);
    return in_time;
  }));
}

namespace {

/// Whether the job is dead before the waiter gets the lock, which a busy machine may delay. The two
/// servers that the job still reaches renew its lease; the other three grant it to the waiter.
bool is_dead_before_the_next() {
  const FleetScene scene;
  Process job = beating(scene, "6");
  ProcessOptions beside = scene.options();
  beside.env["DLOCK_SERVER"] = side_by_side(scene.fleet.direct_urls());
  Process waiter = start_dlock({"run", "-q", "-k", "k", "--", "sh", "-c",
                                "\"$STAMP\" \"$LOG\" start k 2; \"$STAMP\" \"$LOG\" end k 2"},
                               beside);
  REQUIRE(eventually([&] { return scene.waiting("k") == 1; }));
  for (std::size_t i = 0; i < 3; ++i) {
    for (const Direction direction : both_directions) scene.fleet.proxy(i).black_hole(direction);
  }
  const Result lost = job.wait();
  CAPTURE(lost.err);
  CHECK(lost.exit_code == 79);
  CHECK(times(lost.err, "dlock: lost k: ") == 1);
  CHECK(waiter.wait().exit_code == 0);
  CHECK(order_of(scene.log()) == first_numbers(2));
  return overlaps(scene.log()).empty();
}

}  // namespace

TEST_CASE("majority: a holder cut off from three of five is dead before another has the lock") {
  CHECK(unless_machine_stalls(is_dead_before_the_next));
}

namespace {

/// Whether the job is dead before its lease ends; a later client's error names the unreachable
/// servers.
bool three_are_killed() {
  const FleetScene scene;
  const auto urls = scene.fleet.urls();
  const bool in_time = ends_in_time(scene, Blow::killed);

  // A job that had not started yet does not start.
  const Result other = scene.run({"run", "-k", "k", "--", "echo", "ran"});
  CHECK(other.exit_code == 69);
  CHECK(other.out == "");
  CHECK(times(other.err, "no majority of 5 servers") == 1);
  CHECK(names_servers(other.err, {urls[0], urls[1], urls[2]}));
  CHECK(other.duration < stretched(milliseconds(5000)));

  for (std::size_t i = 3; i < 5; ++i) scene.fleet.server(i).kill_hard();
  for (const char* const command : {"run", "inspect", "acquire"}) {
    std::vector<std::string> arguments{command, "-k", "k"};
    if (command == std::string("acquire")) arguments.insert(arguments.end(), {"-t", "5"});
    if (command == std::string("run")) arguments.insert(arguments.end(), {"--", "true"});
    const Result none = scene.run(arguments);
    CHECK(none.exit_code == 69);
    CHECK(names_servers(none.err, urls));
    CHECK(count_lines(none.err) == 1);
  }
  return in_time;
}

}  // namespace

TEST_CASE("majority: killing three of five servers stops the job before its lease ends, 79") {
  CHECK(unless_machine_stalls(three_are_killed));
}

TEST_CASE("majority: who waits stays in the queue while most servers are out of reach") {
  FleetOptions options;
  options.keeping.assign(5, Keeping::aof_always);
  const FleetScene scene(options);
  Process holder = scene.hold("k", "go", {"-t", "60"});
  Process waiter = scene.queue_up("k", 1, "true", {"-t", "9"});
  for (std::size_t i = 0; i < 3; ++i) scene.fleet.server(i).kill_hard();
  CHECK(eventually([&] { return times(waiter.err(), "no majority of 5 servers") > 0; }, long_time));
  for (std::size_t i = 0; i < 3; ++i) scene.fleet.server(i).restart();
  CHECK(eventually([&] { return waiter.err().ends_with("; still waiting\n"); }, long_time));
  scene.touch("go");
  CHECK(holder.wait().exit_code == 0);
  CHECK(waiter.wait().exit_code == 0);
}

namespace {

/// Whether a job whose servers lost their memory is dead before its lease ends, as far as the other
/// servers still have it.
bool ends_where_three_forget() {
  const FleetScene scene;
  Process job = beating(scene, "6");
  if (!is_renewed(scene.fleet, 3)) return false;
  scene.fleet.server(0).restart();
  scene.fleet.server(1).command({"FLUSHALL"});
  scene.fleet.server(2).restart();
  // On a busy machine, one more renewal may have come before that.
  const auto end = last_end(scene.fleet);
  if (!end) return false;
  const Result other = scene.run({"run", "-n", "-k", "k", "--", "echo", "ran"});
  CHECK(other.out == "");
  CHECK((other.exit_code == 69 || other.exit_code == 75));
  const Result result = job.wait();
  CHECK(result.exit_code == 79);
  const bool in_time = tenures(scene.log()).back().end_ns < end->time_since_epoch().count();
  const Result free = scene.run({"run", "-n", "-k", "new", "--", "echo", "ran"});
  CHECK(free.out == "");
  CHECK(free.exit_code == 69);
  CHECK(times(free.err, "too few of 5 servers have a vote") == 1);
  return in_time;
}

/// Whether the holder notices long before its next renewal, which is after 20 s.
bool notices_soon_that_two_are_empty(const std::vector<std::string>& compat) {
  const FleetOptions options{.servers = 3};
  const FleetScene scene(options);
  Process job = beating(scene, "60", compat);
  scene.fleet.server(1).restart();
  scene.fleet.server(2).restart();
  const auto restarted = BootClock::now();
  CHECK(job.wait().exit_code == 79);
  return BootClock::now() - restarted < milliseconds(10'000);
}

}  // namespace

TEST_CASE("majority: servers that lost their memory have no vote, neither for holders nor others") {
  CHECK(unless_machine_stalls(ends_where_three_forget));
}

TEST_CASE("majority: a holder notices at once when servers come back empty, 79") {
  using Options = std::vector<std::string>;
  for (const Options& options : {Options{}, Options{"--compat", "redlock"}}) {
    CHECK(unless_machine_stalls([&] { return notices_soon_that_two_are_empty(options); }));
  }
}

TEST_CASE("majority: the clock of one of three servers jumps, and a job keeps its lock") {
  for (const std::chrono::seconds jump : {std::chrono::seconds(60), std::chrono::seconds(-60)}) {
    CAPTURE(jump.count());
    const FleetOptions options{.servers = 3, .clocked = {0}};
    const FleetScene scene(options);
    Process job = beating(scene, "12");
    scene.fleet.clock(0).advance(jump);
    CHECK(scene.run({"run", "-n", "-k", "k", "--", "true"}).exit_code == 75);
    for (std::size_t i = 0; i < 3; ++i) CHECK(is_renewed(scene.fleet, i));
    CHECK(job.running());
    job.signal(SIGTERM);
    const Result result = job.wait();
    CHECK(result.signal == SIGTERM);
    CHECK(times(result.err, "lost") == 0);
  }
}

TEST_CASE("majority: a server that is always the last to answer gets both of two holds back") {
  const FleetOptions options{.servers = 3};
  const FleetScene scene(options);
  scene.fleet.proxy(2).delay(Direction::replies, milliseconds(150));
  Process job = scene.hold("a", "go", {"-k", "b", "-t", "12"});
  RedisServer& last = scene.fleet.server(2);
  const auto has = [&](const std::string& key) {
    return last.command({"EXISTS", "dlock:{" + key + "}"}).number == 1;
  };
  CHECK(eventually([&] { return has("a") && has("b"); }));
  last.command({"DEL", "dlock:{a}", "dlock:{b}"});
  CHECK(eventually([&] { return has("a") && has("b"); }));
  scene.touch("go");
  const Result result = job.wait();
  CHECK(result.exit_code == 0);
}

}  // namespace dlock::test
