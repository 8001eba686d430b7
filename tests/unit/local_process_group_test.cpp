#include "local/process_group.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/process.hpp"
#include "base/wait.hpp"
#include "local/directory.hpp"
#include "local/refresh_table.hpp"
#include "local/wake_fifo.hpp"
#include "local_support.hpp"
#include "support/eventually.hpp"
#include "support/temp_dir.hpp"

using namespace dlock;
using namespace dlock::test;

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

TEST_CASE("nothing is said about a process of another pid namespace") {
  ProcessId foreign = own_process();
  foreign.pid_space += 1;
  CHECK(process_life(foreign) == Life::unknown);
  CHECK(group_life({foreign}) == Life::unknown);
}

TEST_CASE("a group lives as long as one member runs, its leader or not, and zombies do not count") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Forked leader([&] {
    setpgid(0, 0);
    const pid_t member = fork();
    if (member == 0) {
      prctl(PR_SET_PDEATHSIG, 0);
      sleep_for_ever();
    }
    if (write(ends[1], &member, sizeof member) < 0) _exit(1);
    sleep_for_ever();
  });
  pid_t member = 0;
  REQUIRE(read(ends[0], &member, sizeof member) == sizeof member);
  close(ends[0]);
  close(ends[1]);
  const ProcessId id = process_now(leader.pid());
  CHECK(group_life({id}) == Life::alive);
  ProcessId former = id;
  former.started -= 1;
  CHECK(group_life({former}) == Life::over);
  CHECK(member_ends({id}, 16).size() == 2);
  leader.signal(SIGKILL);
  REQUIRE(eventually([&] { return process_life(id) == Life::over; }));
  CHECK(group_life({id}) == Life::alive);
  kill(member, SIGKILL);
  CHECK(eventually([&] { return group_life({id}) == Life::over; }));
}

/// Each generation forks the next and ends, for a minute at most.
[[noreturn]] void pass_on_for_ever() {
  prctl(PR_SET_PDEATHSIG, 0);
  const Deadline end = later(BootClock::now(), milliseconds(60'000));
  while (fork() == 0) {
    if (BootClock::now() >= end) break;
    usleep(100);
  }
  _exit(0);
}

/// A child does so in that group, and this process reaps them: process 1 may let thousands of
/// zombies lie, and each look at the group meets them all.
[[noreturn]] void pass_on_in(pid_t group) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGCHLD, SIG_IGN);
  if (fork() == 0) {
    setpgid(0, group);
    pass_on_for_ever();
  }
  sleep_for_ever();
}

void lead_group_and_end() {
  setpgid(0, 0);
  _exit(0);
}

bool is_zombie(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat && stat->state == 'Z';
}

TEST_CASE("a group lives also while each of its members forks the next one and ends") {
  Forked leader(lead_group_and_end);
  const ProcessId id = process_now(leader.pid());
  // A look at a leader that runs would look at nobody else.
  REQUIRE(eventually([&] { return is_zombie(id.pid); }));
  // So many zombies make a look longer than the life of a member.
  Forked dead([&] {
    for (int i = 0; i < 100; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        setpgid(0, id.pid);
        _exit(0);
      }
      siginfo_t ended;
      waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT);
    }
    setpgid(0, 0);
    sleep_for_ever();
  });
  REQUIRE(eventually([&] { return getpgid(dead.pid()) == dead.pid(); }));
  Forked members([&] { pass_on_in(id.pid); });
  REQUIRE(eventually([&] { return !member_ends({id}, 1).empty(); }));
  for (int i = 0; i < 30; ++i) CHECK(group_life({id}) == Life::alive);
  CHECK(eventually([&] {
    kill(-id.pid, SIGKILL);
    return group_life({id}) == Life::over;
  }));
}

TEST_CASE("a group of zombies is over also while other processes come and go") {
  Forked leader(lead_group_and_end);
  const ProcessId id = process_now(leader.pid());
  REQUIRE(eventually([&] { return is_zombie(id.pid); }));
  Forked others([] {
    setpgid(0, 0);
    pass_on_in(getpid());
  });
  CHECK(eventually([&] { return group_life({id}) == Life::over; }));
  CHECK(eventually([&] {
    kill(-others.pid(), SIGKILL);
    return group_life({{others.pid(), 0, id.pid_space}}) == Life::over;
  }));
}

TEST_CASE(
    "what is older than the work under a lock is none of it, though it is of the same group") {
  Forked script([] {
    setpgid(0, 0);
    sleep_for_ever();
  });
  setpgid(script.pid(), script.pid());
  const ProcessId id = process_now(script.pid());
  CHECK(group_life({id, id.started}) == Life::alive);
  CHECK(member_ends({id, id.started}, 16).size() == 1);
  CHECK(eventually([&] { return group_life({id, id.started + 1}) == Life::over; }));
  CHECK(member_ends({id, id.started + 1}, 16).empty());
}

TEST_CASE("a process whose first thread has exited runs while another does") {
  Forked process([] {
    std::thread([] { sleep_for_ever(); }).detach();
    syscall(SYS_exit, 0);
  });
  const ProcessId id = process_now(process.pid());
  REQUIRE(eventually([&] { return is_zombie(process.pid()); }));
  CHECK(process_life(id) == Life::alive);
  process.signal(SIGKILL);
  CHECK(eventually([&] { return process_life(id) == Life::over; }));
}

TEST_CASE("who asks for the lock does not wait for itself as the last of the holder's group") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Forked leader([&] {
    setpgid(0, 0);
    const ProcessId id = process_now(getpid());
    const pid_t member = fork();
    if (member != 0) {
      if (write(ends[1], &member, sizeof member) < 0) _exit(1);
      sleep_for_ever();
    }
    while (process_life(id) != Life::over) usleep(1000);
    const bool over = group_life({id}) == Life::over && member_ends({id}, 16).empty();
    if (write(ends[1], &over, sizeof over) < 0) _exit(1);
    sleep_for_ever();
  });
  close(ends[1]);
  pid_t member = 0;
  REQUIRE(read(ends[0], &member, sizeof member) == sizeof member);
  const ProcessId id = process_now(leader.pid());
  leader.signal(SIGKILL);
  bool over = false;
  CHECK(read(ends[0], &over, sizeof over) == sizeof over);
  close(ends[0]);
  CHECK(over);
  CHECK(group_life({id}) == Life::alive);
  kill(member, SIGKILL);
}

TEST_CASE("a mailbox can be reached while its owner lives, and its end is seen") {
  TempDir dir;
  const Directory directory({dir.path(), true});
  Fd writer;
  std::string name;
  {
    WakeFifo box(directory);
    name = box.name();
    CHECK(reach(directory, name).how == Reached::How::missing);
    box.open();
    auto reached = reach(directory, name);
    CHECK(reached.how == Reached::How::listening);
    CHECK(write(reached.fd.get(), "!", 1) == 1);
    CHECK(readable(box.fd()));
    box.take();
    CHECK(!readable(box.fd()));
    writer = std::move(reached.fd);
    CHECK(!readable(writer.get()));
  }
  CHECK(readable(writer.get()));
  CHECK(reach(directory, name).how == Reached::How::missing);
  CHECK(reach(directory, "../" + name).how == Reached::How::missing);
}

TEST_CASE("a mailbox that is a file of somebody's is not written to") {
  TempDir dir;
  const Directory directory({dir.path(), true});
  const std::string name = ".wait-" + std::string(32, '0');
  const Fd file(open((dir / name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(file);
  CHECK(reach(directory, name).how == Reached::How::missing);
}

TEST_CASE("a holder in another pid namespace lives by its mailbox, and then by its lease") {
  TempDir dir;
  const Directory directory({dir.path(), true});
  LockTable table;
  HoldEntry hold;
  hold.at = microseconds(100);
  hold.lease = milliseconds(10);
  hold.backing.by_process = true;
  hold.backing.process = own_process();
  hold.backing.process.pid_space += 1;
  {
    WakeFifo box(directory);
    box.open();
    hold.backing.mailbox = box.name();
    table.holds.push_back(hold);
    refresh(table, directory, microseconds(200));
    CHECK(table.holds[0].at == microseconds(200));
    CHECK(lives_by_process(table.holds[0], microseconds(200)));
    table.holds[0].flag = Flag::provisional;
    refresh(table, directory, microseconds(300));
    CHECK(table.holds[0].at == microseconds(200));
    table.holds[0].flag = Flag::held;
  }
  CHECK(!refresh(table, directory, microseconds(400)).changed);
  CHECK(table.holds[0].at == microseconds(200));
}

TEST_CASE("the first in the queue watches the command of a killed dlock, not the clock") {
  TempDir dir;
  const Directory directory({dir.path(), true});
  Forked command([] {
    setpgid(0, 0);
    sleep_for_ever();
  });
  setpgid(command.pid(), command.pid());
  LockTable table;
  HoldEntry hold;
  hold.backing.by_process = true;
  hold.backing.process = own_process();
  hold.backing.process.started -= 1;
  hold.backing.command = process_now(command.pid());
  table.holds.push_back(hold);
  table.queue.resize(1);
  table.queue[0].token.text = "first";
  CHECK(!refresh(table, directory, microseconds(1)).changed);
  const Watch watch = watch_before(table, directory, {"first"});
  CHECK(watch.first);
  CHECK(!watch.look_again);
  REQUIRE(watch.ends.size() == 1);
  CHECK(!readable(watch.ends[0].get()));
  command.signal(SIGKILL);
  CHECK(eventually([&] { return readable(watch.ends[0].get()); }));
  CHECK(eventually([&] { return refresh(table, directory, microseconds(2)).changed; }));
  CHECK(table.holds.empty());
}

TEST_CASE("the first in the queue looks again where the holder ended without a command just now") {
  TempDir dir;
  const Directory directory({dir.path(), true});
  LockTable table;
  HoldEntry hold;
  hold.backing.by_process = true;
  hold.backing.process = own_process();
  hold.backing.process.started -= 1;
  table.holds.push_back(hold);
  table.queue.resize(1);
  table.queue[0].token.text = "first";
  const Watch watch = watch_before(table, directory, {"first"});
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
  not_begun.floor = milliseconds(7);
  HoldEntry floored = not_begun;
  floored.backing.command.pid = 4242;
  table.holds = {by_process, leased, not_begun, floored};
  table.queue.resize(2);
  CHECK(restart_after_boot(table, microseconds(50)).changed);
  REQUIRE(table.holds.size() == 2);
  CHECK(table.holds[0].at == microseconds(0));
  CHECK(table.holds[0].lease == milliseconds(5));
  CHECK(table.holds[1].flag == Flag::kept);
  CHECK(table.holds[1].lease == milliseconds(7));
  CHECK(table.queue.empty());
  const LockTable seen = table;
  restart_after_boot(table, microseconds(60));
  CHECK(table == seen);
}

TEST_CASE("a lease that was seen to be granted later than now was granted before a reboot") {
  LockTable table;
  CHECK(!clock_went_back(table, microseconds(0)));
  table.holds.resize(1);
  table.holds[0].at = microseconds(50);
  CHECK(!clock_went_back(table, microseconds(50)));
  CHECK(clock_went_back(table, microseconds(49)));
}

TEST_CASE("a table of which one process listens was not written before a reboot") {
  TempDir dir;
  const Directory directory({dir.path(), true});
  WakeFifo holder(directory);
  WakeFifo waiter(directory);
  LockTable table;
  table.holds.resize(1);
  table.queue.resize(1);
  table.holds[0].backing.mailbox = holder.name();
  table.queue[0].backing.mailbox = waiter.name();
  CHECK(!any_listens(table, directory));
  waiter.open();
  CHECK(any_listens(table, directory));
  table.queue.clear();
  CHECK(!any_listens(table, directory));
  holder.open();
  CHECK(any_listens(table, directory));
}

TEST_CASE("two processes of unknown pid namespaces are not taken for one") {
  ProcessId foreign = own_process();
  foreign.pid_space = 0;
  CHECK(process_life(foreign) == Life::unknown);
  CHECK(group_life({foreign}) == Life::unknown);
}
