#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cli/place.hpp"
#include "support/chance.hpp"
#include "support/files.hpp"
#include "support/privileges.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

/// A resource with a file beside it, without any server.
class Resource {
 public:
  std::string file() const { return dir_ / "seal"; }
  const TempDir& dir() const { return dir_; }

  std::vector<std::string> line(const std::string& fence, std::vector<std::string> words) const {
    words.insert(words.begin(), {"guard", "--state", file(), "--fence", fence, "--"});
    return words;
  }
  Result guard(const std::string& fence, const std::vector<std::string>& words) const {
    return dlock(line(fence, words), options());
  }
  Process start(const std::string& fence, const std::vector<std::string>& words) const {
    return start_dlock(line(fence, words), options());
  }
  /// Runs `sh -c script` in the directory, with dlock's path in $D.
  Result shell(const std::string& script) const {
    ProcessOptions all = options();
    all.env["D"] = dlock_path();
    all.env["PORTRAIT"] = DLOCK_PORTRAIT;
    return run({"sh", "-c", script}, clean(all));
  }

 private:
  ProcessOptions options() const { return {.cwd = dir_.path()}; }
  TempDir dir_;
};

std::string stale(const std::string& name, const std::string& fence, const std::string& newer) {
  return "dlock: " + name + ": fence " + fence + " is older than " + newer +
         ", which is recorded: COMMAND was not run\n";
}

void check_not_run(const Result& result, int code, const std::string& says) {
  check_message(result, code, says);
}

}  // namespace

TEST_CASE("guard: a fence that is as large as any before runs, an older one is refused with 79") {
  const Resource resource;
  CHECK(resource.guard("12", {"echo", "ran"}).out == "ran\n");
  CHECK(read_file(resource.file()) == "12\n");
  CHECK(resource.guard("15", {"sh", "-c", "exit 3"}).exit_code == 3);
  CHECK(resource.guard("15", {"echo", "again"}).out == "again\n");
  const Result late = resource.guard("12", {"touch", resource.dir() / "ran"});
  CHECK(late.exit_code == 79);
  CHECK(late.out == "");
  CHECK(late.err == stale(resource.file(), "12", "15"));
  CHECK_FALSE(std::filesystem::exists(resource.dir() / "ran"));
  CHECK(read_file(resource.file()) == "15\n");
  const Result quiet = resource.shell("\"$D\" guard -q --state seal --fence 14 echo ran; echo $?");
  CHECK(quiet.out == "79\n");
  CHECK(quiet.err == stale("seal", "14", "15"));
}

TEST_CASE("guard: the fence is that of the run around it, which a later holder makes older") {
  const Resource resource;
  const Place place(Engine::local);
  const ProcessOptions options{.env = {{"S", resource.file()}}};
  const std::string run = "\"$D\" run -k store -- ";
  const Result result = place.shell(
      run + "sh -c 'echo $DLOCK_FENCE >late; \"$D\" guard --state \"$S\" echo first' && " + run +
          "\"$D\" guard --state \"$S\" echo second && " +
          "DLOCK_FENCE=$(cat late) \"$D\" guard --state \"$S\" echo third; echo $?; " + run +
          "sh -c '\"$D\" guard --state-key a echo one && \"$D\" guard --state-key a -c \"echo 2\"'",
      options);
  CHECK(result.out == "first\nsecond\n79\none\n2\n");
  CHECK(count_lines(result.err) == 1);
  CHECK(place.shell(run + "sh -c '\"$D\" guard --state-key a --fence 1 echo ran'; echo $?").out ==
        "79\n");
  const Result both = place.shell("\"$D\" run -k a -k b -- \"$D\" guard --state-key s echo ran");
  check_not_run(both, 64, "choose with --fence N");
}

TEST_CASE("guard: the command is started as without it") {
  const Resource resource;
  const std::string subject = "\"$PORTRAIT\" 'a b' '' '[]' --fence";
  const Result direct = resource.shell(subject + " 7>other");
  const Result below =
      resource.shell("\"$D\" guard --state seal --fence 1 " + subject + " 7>other");
  REQUIRE(direct.exit_code == 0);
  CHECK(below.exit_code == 0);
  CHECK(below.err == direct.err);
  // The only differences: it dies with dlock, and has its own process group.
  CHECK(count_lines(below.out) == count_lines(direct.out));
  CHECK(holds(below.out, "dies with its parent of 9\n"));
  CHECK_FALSE(holds(below.out, "seal --fence"));
  const auto fds = [](const std::string& script) { return script + "ls /proc/self/fd"; };
  CHECK(resource.shell("\"$D\" guard --state seal --fence 1 " + fds("")).out ==
        resource.shell(fds("")).out);
}

TEST_CASE("guard: ends as its command does, and has recorded its fence however that was") {
  const Resource resource;
  CHECK(resource.guard("1", {"sh", "-c", "kill -9 $$"}).signal == SIGKILL);
  CHECK(resource.guard("2", {"sh", "-c", "kill -TERM $$"}).signal == SIGTERM);
  CHECK(resource.guard("3", {"sh", "-c", "exit 255"}).exit_code == 255);
  CHECK(read_file(resource.file()) == "3\n");
  check_not_run(resource.guard("4", {"no-such-program"}), 127, "\"no-such-program\"");
  CHECK(read_file(resource.file()) == "4\n");
  check_not_run(resource.guard("5", {"/etc/passwd"}), 126, "Permission denied");
  CHECK(read_file(resource.file()) == "5\n");
  Process process = resource.start("6", {"sh", "-c",
                                         "trap 'exit 9' TERM; echo in; while :; do "
                                         "sleep 0.01; done"});
  REQUIRE(eventually([&] { return process.out() == "in\n"; }));
  process.signal(SIGTERM);
  CHECK(process.wait().exit_code == 9);
}

TEST_CASE("guard: kill -9 takes the command with it, and lets the next one in") {
  const Resource resource;
  Process process = resource.start("1", {"sh", "-c", "echo $$; exec sleep 60"});
  REQUIRE(eventually([&] { return holds(process.out(), "\n"); }));
  CHECK(process.kill_hard().signal == SIGKILL);
  const pid_t command = static_cast<pid_t>(std::stol(process.out()));
  CHECK(eventually([&] { return !is_alive(command); }));
  CHECK(resource.guard("1", {"echo", "next"}).out == "next\n");
}

TEST_CASE("guard: killed at any moment it has forgotten nothing, and the next guard goes on") {
  const Resource resource;
  Chance chance(seed_of_this_run());
  const int runs = runs_of_this_test(60);
  // The record gets longer when the fence reaches 10 and 100.
  for (int fence = 1; fence <= 2 * runs; fence += 2) {
    REQUIRE(resource.guard(std::to_string(fence), {"true"}).exit_code == 0);
    Process process = resource.start(std::to_string(fence + 1), {"true"});
    chance.pause_up_to(microseconds(6000));
    process.kill_hard();
    const Result older = resource.guard(std::to_string(fence - 1), {"true"});
    CAPTURE(older.err);
    REQUIRE(older.exit_code == 79);
  }
}

TEST_CASE("guard: one command after the other, and who waits says so and can be ended") {
  const Resource resource;
  Process first = resource.start("1", {"sh", "-c", "echo in; exec sleep 60"});
  REQUIRE(eventually([&] { return first.out() == "in\n"; }));
  Process second = resource.start("2", {"echo", "ran"});
  Process ended = resource.start("3", {"echo", "ran"});
  const std::string waiting = "dlock: waiting: " + resource.file() + " is locked";
  CHECK(eventually([&] { return second.err().starts_with(waiting); }));
  CHECK(eventually([&] { return ended.err().starts_with(waiting); }));
  CHECK(second.out() == "");
  ended.signal(SIGTERM);
  CHECK(ended.wait().signal == SIGTERM);
  CHECK(read_file(resource.file()) == "1\n");
  first.signal(SIGKILL);
  const Result result = second.wait();
  CHECK(result.out == "ran\n");
  CHECK(is_one_message(result.err));
  CHECK(read_file(resource.file()) == "2\n");
}

TEST_CASE("guard: a file that cannot be written is refused with 71") {
  if (skip_if(!not_root_here().empty(), not_root_here())) return;
  const OrdinaryUser user;
  const std::string program = user.own_copy(dlock_path());
  const std::string file = user.dir() / "seal";
  write_file(file, "1\n");
  REQUIRE(chmod(file.c_str(), 0644) == 0);
  REQUIRE(mkdir((user.dir() / "closed").c_str(), 0755) == 0);
  for (const std::string& path : {file, user.dir() / "closed/seal"}) {
    const auto words =
        user.run_as({program, "guard", "--state", path, "--fence", "5", "echo", "ran"});
    const Result result = run(words, clean({.env = {{"HOME", user.dir().path()}}}));
    check_not_run(result, 71, path + ": Permission denied");
  }
  CHECK(read_file(file) == "1\n");
  const Result full = run({"unshare", "-m", "sh", "-c",
                           "mount -t tmpfs -o size=4k,nr_inodes=3 none " + user.dir().path() +
                               " && cd " + user.dir().path() + " && cat /dev/zero >filler; " +
                               dlock_path() + " guard --state seal --fence 5 echo ran; echo $?"},
                          clean({}));
  if (skip_if(holds(full.err, "unshare") || holds(full.err, "mount"), "no mount here")) return;
  CHECK(full.out == "71\n");
  CHECK(holds(full.err, "No space left on device"));
}

TEST_CASE("guard: a file size limit is told of, and the command does not start") {
  const Resource resource;
  const Result result = resource.shell(
      "(ulimit -f 0; exec \"$D\" guard --state seal --fence 1 echo ran 2>&1) | cat; wc -c <seal");
  CHECK(result.out == "dlock: cannot write seal: File too large\n0\n");
}

}  // namespace dlock::test
