#include "lock/work.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/process.hpp"
#include "base/process_identity.hpp"
#include "base/wait.hpp"
#include "local/dead_holders.hpp"
#include "local/directory.hpp"
#include "local/wake_fifo.hpp"
#include "local_support.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

using namespace dlock;
using namespace dlock::test;

/// An owner that only this test uses, as others run beside it.
const std::string mine = "t" + std::to_string(getpid());

TEST_CASE("a process is alive until it ends, and a zombie is not alive") {
  CHECK(process_life(own_process()) == Life::alive);
  Forked child([] { sleep_for_ever(); });
  const ProcessId id = process_now(child.pid());
  CHECK(id.started > 0);
  CHECK(process_life(id) == Life::alive);
  const Fd end = process_end(id);
  REQUIRE(end);
  CHECK(!readable(end.get()));
  child.signal(SIGKILL);
  CHECK(eventually([&] { return process_life(id) == Life::over; }));
  CHECK(eventually([&] { return readable(end.get()); }));
  child.wait();
  CHECK(process_life(id) == Life::over);
  CHECK(!process_end(id));
}

TEST_CASE("a name with blanks and parentheses does not disturb what /proc says") {
  Forked child([] {
    prctl(PR_SET_NAME, ") Z 1 (");
    sleep_for_ever();
  });
  const ProcessId id = process_now(child.pid());
  REQUIRE(eventually([&] { return command_name(child.pid()) == ") Z 1 ("; }));
  CHECK(process_now(child.pid()) == id);
  CHECK(process_life(id) == Life::alive);
}

TEST_CASE("a pid that was given to another process is not the one that was meant") {
  ProcessId former = own_process();
  former.started -= 1;
  CHECK(process_life(former) == Life::over);
  CHECK(!process_end(former));
}

TEST_CASE("nothing is said about a process of another pid namespace, or of an unknown one") {
  for (const std::uint64_t space : {own_process().pid_space + 1, std::uint64_t{0}}) {
    ProcessId foreign = own_process();
    foreign.pid_space = space;
    CHECK(process_life(foreign) == Life::unknown);
    CHECK(work_life({Owner{mine}, foreign, 0}) == Life::unknown);
  }
}

/// A process that runs `sleep`, with `owner` in its environment unless that is empty.
Process marked(const std::string& owner) {
  ProcessOptions options;
  if (!owner.empty()) options.env["DLOCK_OWNER"] = owner;
  Process process({"sh", "-c", "exec sleep 60"}, options);
  // The kernel names a program that it executes before it shows the program's environment.
  CHECK(eventually([&] {
    return command_name(process.pid()) == "sleep" &&
           (owner.empty() || works_for(process.pid(), Owner{owner}));
  }));
  return process;
}

/// The work of `owner`, whose command leads no process group.
Work work_of(const std::string& owner, std::uint64_t since = 0) {
  ProcessId nobody = own_process();
  nobody.pid = 0x7fffffff;
  return {Owner{owner}, nobody, since};
}

TEST_CASE(
    "the work of an owner runs as long as a process with its mark, or one below, in any session") {
  const Work work = work_of(mine + "/b2");
  // While other processes come and go, a look cannot always tell.
  const auto is_over = [&] { return work_life(work) == Life::over; };
  CHECK(eventually(is_over));
  for (const std::string& owner : {mine + "/b2", mine + "/b2/c3"}) {
    CAPTURE(owner);
    Process process = marked(owner);
    CHECK(work_life(work) == Life::alive);
    CHECK(works_for(process.pid(), work.owner));
    CHECK(running_processes(work) == std::vector{process.pid()});
    const auto ends = work_ends(work, 16);
    REQUIRE(ends.size() == 1);
    process.signal(SIGKILL);
    CHECK(eventually([&] { return readable(ends[0].get()); }));
    CHECK(eventually(is_over));  // a zombie
    process.wait();
  }
  for (const std::string& owner : {mine, mine + "/b22", std::string("b2"), std::string()}) {
    CAPTURE(owner);
    Process process = marked(owner);
    CHECK(eventually(is_over));
    CHECK(!works_for(process.pid(), work.owner));
    process.kill_hard();
  }
}

TEST_CASE("what is older than the dlock that holds is no work of its, also with its mark") {
  Process process = marked(mine);
  const auto started = process_now(process.pid()).started;
  CHECK(work_life(work_of(mine, started)) == Life::alive);
  CHECK(eventually([&] { return work_life(work_of(mine, started + 1)) == Life::over; }));
  process.kill_hard();
}

TEST_CASE("a process without the mark is no work, though it is in the command's process group") {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"sleep", "60"}, {"env", "-i", "sleep", "60"}}) {
    CAPTURE(words.size());
    Process process(words);
    REQUIRE(eventually([&] { return command_name(process.pid()) == "sleep"; }));
    const Work work{Owner{mine}, process_now(process.pid()), 0};
    CHECK(eventually([&] { return work_life(work) == Life::over; }));
    process.kill_hard();
  }
}

/// Each process forks its successor and exits, for a minute at most.
constexpr char generations[] = "$SIG{CHLD} = 'IGNORE'; while (time < $^T + 60) { exit if fork }";

TEST_CASE("the work runs also while each of its processes forks the next one and ends") {
  // It reaps them: process 1 may leave thousands of zombies, and each look reads them all.
  Forked reaper([&] {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_IGN);
    setpgid(0, 0);
    setenv("DLOCK_OWNER", mine.c_str(), 1);
    if (fork() == 0) {
      execlp("perl", "perl", "-e", generations, nullptr);
      _exit(127);
    }
    sleep_for_ever();
  });
  const Work work = work_of(mine);
  REQUIRE(eventually([&] { return !running_processes(work).empty(); }));
  for (int i = 0; i < 30; ++i) CHECK(work_life(work) == Life::alive);
  CHECK(work_life(work_of(mine + "2")) == Life::over);  // their mark belongs to no other owner
  CHECK(eventually([&] {
    kill(-reaper.pid(), SIGKILL);
    return work_life(work) == Life::over;
  }));
}

TEST_CASE("a process whose first thread has exited runs while another does") {
  Forked process([] {
    std::thread([] { sleep_for_ever(); }).detach();
    syscall(SYS_exit, 0);
  });
  const ProcessId id = process_now(process.pid());
  REQUIRE(eventually([&] { return is_in_state('Z', process.pid()); }));
  CHECK(process_life(id) == Life::alive);
  process.signal(SIGKILL);
  CHECK(eventually([&] { return process_life(id) == Life::over; }));
}

struct Folder {
  TempDir dir;
  const Directory directory{{dir.path(), true}};
};

/// A table whose holder, a process, has ended, with a waiter.
LockTable held_by_dead() {
  LockTable table;
  table.holds.resize(1);
  table.holds[0].backing.by_process = true;
  table.holds[0].backing.process = own_process();
  table.holds[0].backing.process.started -= 1;
  table.queue.resize(1);
  table.queue[0].token.text = "first";
  return table;
}

TEST_CASE("a mailbox can be reached while its owner lives, and its end is seen") {
  const Folder folder;
  Fd writer;
  std::string name;
  {
    WakeFifo box(folder.directory);
    name = box.name();
    CHECK(reach(folder.directory, name).how == Reached::How::gone);
    box.open();
    auto reached = reach(folder.directory, name);
    CHECK(reached.how == Reached::How::listening);
    CHECK(write(reached.fd.get(), "!", 1) == 1);
    CHECK(readable(box.fd()));
    box.take();
    CHECK(!readable(box.fd()));
    writer = std::move(reached.fd);
    CHECK(!readable(writer.get()));
  }
  CHECK(readable(writer.get()));
  CHECK(reach(folder.directory, name).how == Reached::How::gone);
  CHECK(reach(folder.directory, "../" + name).how == Reached::How::gone);
}

TEST_CASE("a mailbox that is a file of somebody's is not written to") {
  const Folder folder;
  const std::string name = ".wait-" + std::string(32, '0');
  const Fd file(open((folder.dir / name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(file);
  CHECK(reach(folder.directory, name).how == Reached::How::gone);
}

TEST_CASE("a holder in another pid namespace lives by its mailbox, and then by its lease") {
  const Folder folder;
  LockTable table;
  HoldEntry hold;
  hold.at = microseconds(100);
  hold.lease = milliseconds(10);
  hold.backing.by_process = true;
  hold.backing.process = own_process();
  hold.backing.process.pid_space += 1;
  {
    WakeFifo box(folder.directory);
    box.open();
    hold.backing.mailbox = box.name();
    table.holds.push_back(hold);
    refresh(table, folder.directory, microseconds(200), {});
    CHECK(table.holds[0].at == microseconds(200));
    CHECK(lives_by_process(table.holds[0], microseconds(200)));
    table.holds[0].flag = Flag::provisional;
    refresh(table, folder.directory, microseconds(300), {});
    CHECK(table.holds[0].at == microseconds(200));
    table.holds[0].flag = Flag::held;
  }
  CHECK(!refresh(table, folder.directory, microseconds(400), {}).changed);
  CHECK(table.holds[0].at == microseconds(200));
}

TEST_CASE("the first in the queue watches the command of a killed dlock, not the clock") {
  const Folder folder;
  Process command = marked(mine);
  LockTable table = held_by_dead();
  table.holds[0].token = {mine + ":1"};
  table.holds[0].backing.command = own_process();
  CHECK(!refresh(table, folder.directory, microseconds(1), {}).changed);
  const QueueWatch watch = watch_before(table, folder.directory, {"first"});
  CHECK(watch.first);
  CHECK(!watch.look_again);
  REQUIRE(watch.ends.size() == 1);
  CHECK(!readable(watch.ends[0].get()));
  command.signal(SIGKILL);
  CHECK(eventually([&] { return readable(watch.ends[0].get()); }));
  CHECK(eventually([&] { return refresh(table, folder.directory, microseconds(2), {}).changed; }));
  CHECK(table.holds.empty());
}

TEST_CASE("the first in the queue looks again where the holder ended without a command just now") {
  const Folder folder;
  const QueueWatch watch = watch_before(held_by_dead(), folder.directory, {"first"});
  CHECK(watch.look_again);
  CHECK(watch.ends.empty());
}

TEST_CASE(
    "a reboot voids holds by process and the queue, and leases and floors count from the boot") {
  LockTable table;
  HoldEntry by_process;
  by_process.backing.by_process = true;
  HoldEntry leased;
  leased.at = leased.since = microseconds(900'000'000);
  leased.lease = milliseconds(5);
  HoldEntry not_begun = by_process;
  not_begun.min_hold = milliseconds(7);
  HoldEntry floored = not_begun;
  floored.backing.command.pid = 4242;
  table.holds = {by_process, leased, not_begun, floored};
  table.queue.resize(2);
  const Folder folder;
  restart_after_boot(table, folder.directory, microseconds(50));
  REQUIRE(table.holds.size() == 2);
  CHECK(table.holds[0].at == microseconds(0));
  CHECK(table.holds[0].lease == milliseconds(5));
  CHECK(table.holds[1].flag == Flag::cooldown);
  CHECK(table.holds[1].lease == milliseconds(7));
  CHECK(table.queue.empty());
  const LockTable seen = table;
  restart_after_boot(table, folder.directory, microseconds(60));
  CHECK(table == seen);
}

TEST_CASE("a lease that was seen to be granted later than now was granted before a reboot") {
  const Folder folder;
  const auto is_old = [&](const LockTable& table, int now) {
    return is_of_earlier_boot(table, KeyFile::Boot::unknown, folder.directory, microseconds(now));
  };
  LockTable table;
  CHECK(!is_old(table, 0));
  table.holds.resize(1);
  table.holds[0].at = microseconds(50);
  CHECK(!is_old(table, 50));
  CHECK(is_old(table, 49));
}

TEST_CASE("a table of which one process listens was not written before a reboot") {
  const Folder folder;
  WakeFifo holder(folder.directory);
  WakeFifo waiter(folder.directory);
  LockTable table;
  table.holds.resize(1);
  table.queue.resize(1);
  table.holds[0].backing.mailbox = holder.name();
  table.queue[0].backing.mailbox = waiter.name();
  const auto is_old = [&] {
    return is_of_earlier_boot(table, KeyFile::Boot::other, folder.directory, microseconds(0));
  };
  CHECK(is_old());
  waiter.open();
  CHECK(!is_old());
  table.queue.clear();
  CHECK(is_old());
  holder.open();
  CHECK(!is_old());
  CHECK(!is_of_earlier_boot({}, KeyFile::Boot::current, folder.directory, microseconds(0)));
}
