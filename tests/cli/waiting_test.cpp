#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <filesystem>
#include <optional>
#include <regex>
#include <set>

#include "cli/place.hpp"
#include "support/fault_proxy.hpp"
#include "support/files.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

/// The FIFOs of the clients that listen in a lock directory.
std::set<std::string> mailboxes_in(const std::string& directory) {
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with(".wait-")) all.insert(entry.path());
  }
  return all;
}

Result try_run(const Place& place, std::vector<std::string> options) {
  options.insert(options.begin(), "run");
  options.insert(options.end(), {"-n", "--", "true"});
  return place.dlock(options);
}

TEST_CASE("waiting: -n is refused at once with 75 and says by whom") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("nightly", {"--label", "job 17"});
    for (const char* flag : {"-n", "--nonblock", "--nb", "-w0", "--wait=0"}) {
      const auto result = place.dlock({"run", "-k", "nightly", flag, "--", "echo", "ran"});
      check_message(result, 75);
      CHECK(result.err.starts_with("dlock: nightly is held by "));
      CHECK(holds(result.err, " pid " + std::to_string(holder.pid()) + " ("));
      CHECK(holds(result.err, ") [job 17] for "));
      CHECK(holds(result.err, ", lease ") == !place.is_local());
    }
    check_quiet(place.dlock({"run", "-q", "-n", "-k", "nightly", "--", "true"}), 75);
    check_message(place.dlock({"acquire", "-t", "30s", "-n", "-k", "nightly"}), 75);
  });
}

TEST_CASE("waiting: -w gives up with 75 in time, having said so when it began") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("a");
    Result result;
    // On a busy machine, the wait may end before dlock learns the holder, but not in every try.
    in_one_of(3, [&] {
      result = place.dlock({"run", "-k", "a", "-w", "2", "--", "echo", "ran"});
      return count_lines(result.err) == 2 && result.duration < stretched(milliseconds(6000));
    });
    CHECK(result.exit_code == 75);
    CHECK(result.out == "");
    CHECK(count_lines(result.err) == 2);
    CHECK(result.err.starts_with("dlock: waiting: a is held by "));
    CHECK(std::regex_search(result.err, std::regex("\ndlock: not acquired within [2-9]s: ")));
    CHECK(result.duration >= milliseconds(2000));
    CHECK(result.duration < stretched(milliseconds(6000)));
    CHECK(place.waiters("a") == 0);
  });
}

TEST_CASE("waiting: what is said on giving up is not older than that moment") {
  on_each_engine([](const Place& place) {
    long age = 0;
    long most = 0;
    std::string last;
    // That last look has a fifth of a second, which may be too little on a busy machine.
    for (int tries = 0; age == 0 && tries < 3; ++tries) {
      const std::string key = "a" + std::to_string(tries);
      const auto before = BootClock::now();
      const auto holder = place.hold(key);
      const auto result = place.dlock({"run", "-k", key, "-w", "1.1", "--", "true"});
      most = std::chrono::floor<std::chrono::seconds>(BootClock::now() - before).count();
      last = result.err.substr(result.err.rfind("dlock: "));
      std::smatch found;
      const bool told = std::regex_search(last, found, std::regex("\\) for (\\d+)s"));
      if (told) age = std::stol(found[1].str());
    }
    CAPTURE(last);
    CHECK(age >= 1);
    CHECK(age <= most);
    CHECK(!holds(last, "waiting"));
  });
}

TEST_CASE("waiting: without -w it waits until the key is free and says when it is let in") {
  on_each_engine([](const Place& place) {
    auto holder = place.hold("a");
    auto waiter = place.start({"run", "-k", "a", "--", "echo", "ran"});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    CHECK(waiter.out() == "");
    holder.signal(SIGTERM);
    const auto result = waiter.wait();
    check_ran(result, "ran\n");
    CHECK(count_lines(result.err) == 2);
    CHECK(holds(result.err, "\ndlock: a acquired after "));
  });
}

TEST_CASE("waiting: a stderr that nobody reads keeps no command from its lock") {
  on_each_engine([](const Place& place) {
    auto holder = place.hold("a");
    const FullPipe full;
    auto waiter = place.start({"run", "-v", "-k", "a", "--", "echo", "ran"},
                              {.stderr_fd = full.writer.get()});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    holder.signal(SIGTERM);
    check_ran(waiter.wait(), "ran\n");
    CHECK(place.is_free("a"));
  });
}

TEST_CASE("waiting: a stderr that nobody reads keeps no lock from others when one is lost") {
  on_each_engine([](const Place& place) {
    const FullPipe full;
    const ProcessOptions options{.stderr_fd = full.writer.get()};
    std::vector<std::string> words{"run", "-k", "a", "-k", "b", "--"};
    for (const std::string& word : staying()) words.push_back(word);
    auto holder = place.start(words, options);
    REQUIRE(eventually([&] { return holder.out() == "in\n"; }));
    CHECK(place.dlock({"release", "--force", "a"}).exit_code == 0);
    CHECK(eventually([&] { return place.is_free("b"); }));
    holder.signal(SIGKILL);
  });
}

TEST_CASE("waiting: a signal ends it as it ends any program, and leaves nothing queued") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("a");
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
      CAPTURE(signal);
      for (const char* command : {"run", "acquire"}) {
        std::vector<std::string> words{command, "-k", "a", "-t", "30s"};
        if (words[0] == "run") words.insert(words.end(), {"--", "echo", "ran"});
        auto waiter = place.start(words);
        REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
        waiter.signal(signal);
        const auto result = waiter.wait();
        CHECK(result.signal == signal);
        CHECK(result.out == "");
        CHECK(place.waiters("a") == 0);
      }
    }
  });
}

TEST_CASE("waiting: a signal ends it also while another process is inside the key's file") {
  const Place place(Engine::local);
  const auto holder = place.hold("a");
  const std::string locks = place.url().substr(std::string("local:").size());
  const auto of_holder = mailboxes_in(locks);
  auto waiter = place.start({"run", "-k", "a", "--", "echo", "ran"});
  REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
  std::set<std::string> of_waiter = mailboxes_in(locks);
  for (const std::string& each : of_holder) of_waiter.erase(each);
  REQUIRE(of_waiter.size() == 1);
  const std::string path = locks + "/a.dlock";
  Fd inside(open(path.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(flock(inside.get(), LOCK_EX) == 0);
  // A byte makes the waiter look at its key, like a hand-over.
  write_file(*of_waiter.begin(), "!");
  REQUIRE(eventually([&] { return queued_at_file(path) == 1; }));
  const Deadline told = BootClock::now();
  waiter.signal(SIGTERM);
  const auto result = waiter.wait();
  CHECK(passed_since(told) < milliseconds(20'000));  // it does not wait for the file
  CHECK(result.signal == SIGTERM);
  CHECK(result.out == "");
  inside.reset();
  CHECK(place.waiters("a") == 0);
}

TEST_CASE("waiting: a signal without a name ends it like any other, and the status tells it") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("a");
    auto waiter = place.start({"run", "-k", "a", "--status-fd", "1", "--", "true"});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    waiter.signal(SIGRTMIN + 2);
    const auto result = waiter.wait();
    CHECK(result.signal == SIGRTMIN + 2);
    CHECK(holds(result.out, "\"reason\":\"signal " + std::to_string(SIGRTMIN + 2) + "\""));
    CHECK(place.waiters("a") == 0);
  });
}

TEST_CASE("waiting: -E changes 75 and nothing else") {
  on_each_engine([](const Place& place) {
    {
      const auto holder = place.hold("a");
      CHECK(try_run(place, {"-k", "a", "-E", "3"}).exit_code == 3);
      CHECK(try_run(place, {"-k", "a", "-E0"}).exit_code == 0);
      CHECK(try_run(place, {"-k", "a", "--conflict-exit-code=255"}).exit_code == 255);
      CHECK(place.dlock({"run", "-k", "a", "-E", "3", "-w", "0.1", "--", "true"}).exit_code == 3);
    }
    CHECK(place.dlock({"run", "-E", "3", "-k", "b", "-c", "exit 75"}).exit_code == 75);
    check_message(place.dlock({"acquire", "-k", "a", "-t", "5s", "-E", "3"}), 64);
  });
}

TEST_CASE("waiting: readers are in together, a writer is alone") {
  on_each_engine([](const Place& place) {
    auto reader = place.hold("a", {"-s"});
    auto other = place.hold("a", {"--shared"});
    CHECK(try_run(place, {"-k", "a"}).exit_code == 75);
    CHECK(holds(try_run(place, {"-k", "a"}).err, " is held by 2 owners: "));
    reader.signal(SIGTERM);
    other.signal(SIGTERM);
    reader.wait();
    other.wait();
    const auto writer = place.hold("a");
    CHECK(try_run(place, {"-k", "a", "-s"}).exit_code == 75);
  });
}

TEST_CASE("waiting: -w or its variable covers a server that is not there yet, and -n is one try") {
  const Place place(Engine::redis);
  FaultProxy proxy(place.server().address());
  const ProcessOptions options{.env = {{"DLOCK_SERVER", proxy.url()}}};
  ProcessOptions by_variable = options;
  by_variable.env["DLOCK_WAIT"] = "5m";
  proxy.refuse(true);
  Process runs = place.start({"run", "-k", "a", "-w", "5m", "--", "echo", "ran"}, options);
  Process acquires = place.start({"acquire", "-k", "b", "-t", "1m"}, by_variable);
  for (const Process* each : {&runs, &acquires}) {
    REQUIRE(eventually([&] { return holds(each->err(), "; still waiting, trying again\n"); }));
  }
  CHECK(place.dlock({"run", "-k", "c", "-n", "--", "true"}, by_variable).exit_code == 69);
  CHECK(place.dlock({"run", "-k", "c", "-w", "0.3", "--", "true"}, options).exit_code == 69);
  CHECK(place.dlock({"run", "-k", "c", "--", "true"}, options).exit_code == 69);
  proxy.refuse(false);
  check_ran(runs.wait(), "ran\n");
  CHECK(acquires.wait().exit_code == 0);
}

bool wait_ends_in_time() {
  const Place place(Engine::redis);
  // A waiter asks again when this lease ends.
  CHECK(place.dlock({"acquire", "-k", "a", "-t", "2s"}).exit_code == 0);
  const auto begun = BootClock::now();
  Process waiter = place.start({"run", "-w", "3s", "-k", "a", "--", "true"});
  CHECK(eventually([&] { return place.waiters("a") == 1 || !waiter.running(); }));
  place.server().stop();
  const auto result = waiter.wait();
  place.server().cont();
  return result.exit_code == 69 && passed_since(begun) < milliseconds(6500);
}

TEST_CASE("waiting: -w ends in time also where the server falls silent meanwhile, 69") {
  CHECK(in_one_of(3, wait_ends_in_time));
}

/// The time from a release to the end of the next waiter's command. It cannot renew its lease, as
/// its dlock cannot start a thread. Empty without permission to trace.
std::optional<milliseconds> time_of_unkept_command() {
  const Place place(Engine::redis);
  const std::string token = place.acquired("a");
  auto waiter = place.start_shell(R"(
      none='strace -D -qq -o /dev/null -e trace=clone3 -e inject=clone3:error=EAGAIN'
      $none true 2>/dev/null || exit 0
      trap '' TERM
      exec $none "$D" run -q -k a -t 30s --grace 10s -- sh -c "echo in; exec sleep 60")");
  REQUIRE(eventually([&] { return !waiter.running() || place.waiters("a") == 1; }));
  if (!waiter.running()) return std::nullopt;
  const auto released = BootClock::now();
  CHECK(place.dlock({"release", "-k", "a", "--token", token}).exit_code == 0);
  const auto result = waiter.wait();
  CHECK(result.exit_code == 71);
  CHECK(result.out == "in\n");
  return passed_since(released);
}

TEST_CASE("waiting: a command whose lock cannot be kept is dead when its short lease ends") {
  CHECK(unless_machine_stalls([] {
    const auto ran = time_of_unkept_command();
    return !ran || *ran < stretched(milliseconds(7000));
  }));
}

}  // namespace

namespace {

TEST_CASE("latest: only the newest deployment runs after the present one, and the others say why") {
  on_each_engine([](const Place& place) {
    auto present = place.hold("site", {"--latest"});
    std::vector<Process> deployments;
    auto other = place.start({"run", "-k", "site", "--", "true"});
    REQUIRE(eventually([&] { return place.waiters("site") == 1; }));
    for (int i = 1; i <= 3; ++i) {
      const std::string name = "build-" + std::to_string(i);
      deployments.push_back(
          place.start({"run", "-k", "site", "--latest", "--label", name, "--", "echo", name}));
      REQUIRE(eventually([&] {
        const auto waiters = place.state("site")["waiters"];
        return waiters.size() == 2 && waiters[1]["label"] == name;
      }));
    }
    for (int i = 0; i < 2; ++i) {
      const auto left = deployments[static_cast<std::size_t>(i)].wait();
      check_says(left, 75, "dlock: left the queue after ");
      CHECK(left.out == "");
      CHECK(holds(left.err, ": site: superseded by "));
      // A still newer claim may wait by the time it asks for the reason.
      CHECK((holds(left.err, "[build-" + std::to_string(i + 2) + "]") ||
             holds(left.err, "[build-3]")));
    }
    CHECK(present.running());
    present.signal(SIGTERM);
    CHECK(other.wait().exit_code == 0);
    check_ran(deployments.back().wait(), "build-3\n");
    CHECK(place.is_free("site"));
  });
}

TEST_CASE("latest: acquire knows it, -E changes its exit code, and not to wait excludes it") {
  on_each_engine([](const Place& place) {
    const auto token = place.acquired("a");
    auto older = place.start({"run", "-E", "0", "-k", "a", "--latest", "--", "false"});
    REQUIRE(eventually([&] { return place.waiters("a") == 1; }));
    auto newer = place.start({"acquire", "-k", "a", "-t", "1m", "--latest"});
    CHECK(older.wait().exit_code == 0);
    REQUIRE(place.dlock({"release", "a", "--token", token}).exit_code == 0);
    CHECK(newer.wait().exit_code == 0);
  });
  const Place place(Engine::local);
  for (const std::vector<std::string>& wait : {std::vector<std::string>{"-n"}, {"-w", "0"}}) {
    auto words = wait;
    words.insert(words.begin(), {"run", "-k", "a", "--latest"});
    words.insert(words.end(), {"--", "true"});
    check_message(place.dlock(words), 64, "--latest");
  }
}

}  // namespace

}  // namespace dlock::test
