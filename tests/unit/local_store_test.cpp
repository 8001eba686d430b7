#include "local/local_store.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <new>
#include <optional>

#include "base/wait.hpp"
#include "error_of.hpp"
#include "local/directory.hpp"
#include "local/key_file.hpp"
#include "local_support.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/process.hpp"
#include "support/stretched.hpp"
#include "support/temp_dir.hpp"

using namespace dlock;
using namespace dlock::test;

namespace {

struct Place {
  TempDir dir;
  DirectorySettings settings{dir / "locks", true};
};

std::size_t files_in(const std::string& path, const std::string& start) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().filename().string().starts_with(start)) ++count;
  }
  return count;
}

std::string message_of(const std::function<void()>& work, ErrorKind kind) {
  const auto error = error_of(work).value();
  CHECK(error.first == kind);
  return error.second;
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

/// Makes the state of a key's file look as if it was written before this boot.
void date_before_boot(const std::string& path) {
  std::string file = read_file(path);
  const auto state = read_state(
      [&](const Region& region) {
        return std::string_view(file).substr(std::min<std::size_t>(region.offset, file.size()),
                                             region.length);
      },
      boot_hash());
  REQUIRE(state);
  const std::string body(state->body);
  const Slot next = next_slot(state->slot, body, std::nullopt, boot_hash() + 1);
  file.resize(std::max<std::size_t>(file.size(), next.body.end()));
  file.replace(next.body.offset, body.size(), body);
  file.replace(next.offset(), sizeof(Slot), next.bytes());
  write_file(path, file);
}

/// Whether a hand-over of that time may have expired by now, as an unconfirmed one does after two
/// seconds. A test has to be repeated if the machine was so late.
bool may_have_lapsed(Deadline handed_over) {
  return passed_since(handed_over) > milliseconds(1500);
}

/// Releases a key with `dead` dead waiters followed by 30 living ones. False if the machine was so
/// late that the hand-over may have expired.
bool goes_past_dead(std::size_t dead) {
  Place place;
  LocalStore store(place.settings);
  const Claim held = claim_on("k");
  REQUIRE(try_lock(store, held));
  std::deque<LocalStore> queue;
  std::vector<Claim> claims;
  for (std::size_t i = 0; i < dead + 30; ++i) {
    queue.emplace_back(place.settings);
    claims.push_back(claim_on("k"));
    REQUIRE(queue.back().acquire(claims.back(), {true, {}}, {}).index() == 1);
  }
  for (std::size_t i = 0; i < dead; ++i) queue.pop_front();
  const Deadline released = BootClock::now();
  store.release(held, {}, {});
  CHECK(readable(queue[0].news_fd()));
  CHECK(readable(queue[1].news_fd()));
  CHECK(!readable(queue[2].news_fd()));
  const auto granted = queue[0].renew(claims[dead], {}, {}).grant;
  if (!granted && may_have_lapsed(released)) return false;
  CHECK(granted);
  const auto state = store.inspect({{held.key}, {}}, {})[0];
  REQUIRE(state.holders.size() == 1);
  CHECK(state.waiters.size() == 29);
  CHECK(state.waiters.front().owner == claims[dead + 1].owner.text);
  CHECK(state.waiters.back().owner == claims.back().owner.text);
  return true;
}

/// Grants the lock to a hundred readers with fewer files to open. False if the machine was so late
/// that the hand-over may have expired.
bool lets_in_many_shared() {
  Place place;
  LocalStore store(place.settings);
  const Claim writer = claim_on("k");
  REQUIRE(try_lock(store, writer));
  std::deque<LocalStore> queue;
  for (int i = 0; i < 100; ++i) {
    Claim reader = claim_on("k");
    reader.limit = no_limit;
    queue.emplace_back(place.settings);
    queue.back().acquire(reader, {true, {}}, {});
  }
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  // Allow 80 descriptors more than are open now.
  const Fd next(dup(STDERR_FILENO));
  const rlimit few{static_cast<rlim_t>(next.get()) + 80, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const Deadline released = BootClock::now();
  store.release(writer, {}, {});
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto state = store.inspect({{writer.key}, {}}, {})[0];
  if (state.holders.size() < 100 && may_have_lapsed(released)) return false;
  CHECK(state.holders.size() == 100);
  CHECK(state.waiters.empty());
  return true;
}

/// Sleeps for `claim` until `until`; returns whether the lock was handed over and confirmed.
bool sleep_for_lock(LocalStore& store, const Claim& claim, Deadline until) {
  while (true) {
    const Wake wake = store.sleep(claim, until, -1);
    if (wake.why == Wake::Reason::granted) return store.renew(claim, {}, {}).grant.has_value();
    if (wake.why != Wake::Reason::changed) return false;
    until = wake.ask_again_at;
  }
}

/// Waits in the queue until it has the lock, as acquire() does.
void wait_for_lock(LocalStore& store, const Claim& claim) {
  Ask ask{true, std::nullopt};
  while (true) {
    const Answer answer = store.acquire(claim, ask, {});
    if (std::holds_alternative<Grant>(answer)) return;
    const auto& refusal = std::get<Refusal>(answer);
    ask.ticket = refusal.ticket;
    const auto span = std::min(refusal.ask_again_in, milliseconds(25'000));
    if (sleep_for_lock(store, claim, later(BootClock::now(), span))) return;
  }
}

struct Stage : Place {
  LocalStore store{settings};
  /// A number that the test shares with its forked processes.
  std::atomic<int>& shared = *new (mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);
  ~Stage() { munmap(&shared, sizeof(shared)); }

  std::size_t waiting(const std::string& key) {
    return store.inspect({{{key}}, {}}, {})[0].waiters.size();
  }
  bool held(const std::string& key) { return !store.inspect({{{key}}, {}}, {})[0].holders.empty(); }
  /// Acquires the key in this process, counts that in `shared`, and stays.
  void hold_and_stay(const std::string& key) const {
    LocalStore own(settings);
    wait_for_lock(own, claim_on(key));
    ++shared;
    sleep_for_ever();
  }
};

}  // namespace

TEST_CASE("a token of a key that has no file holds nothing, and no file is made for it") {
  Place place;
  LocalStore store(place.settings);
  CHECK(store.release(claim_named({"k"}, {"t"}), {}, {}).outcome == Released::not_held);
  CHECK(!store.renew(claim_named({"k"}, {"t"}), {}, {}).grant);
  CHECK(store.evict({"k"}, {std::nullopt, Who{}}, {}).empty());
  CHECK(store.inspect({{{"k"}}, {}}, {})[0].holders.empty());
  CHECK(std::filesystem::is_empty(place.settings.path));
}

TEST_CASE("inspect lists the waiters with their places, and the dead are not among them") {
  Place place;
  LocalStore store(place.settings);
  REQUIRE(try_lock(store, claim_on("k")));
  const Claim waiting = claim_on("k");
  const auto answer = std::get<Refusal>(store.acquire(waiting, {true, {}}, {}));
  CHECK(answer.ahead == 0);
  CHECK(answer.waiting == 1);
  {
    LocalStore gone(place.settings);
    CHECK(std::get<Refusal>(gone.acquire(claim_on("k"), {true, {}}, {})).ahead == 1);
  }
  const auto state = store.inspect({{{"k"}}, {}}, {})[0];
  REQUIRE(state.waiters.size() == 1);
  CHECK(state.waiters[0].position == 1);
  CHECK(state.waiters[0].owner == waiting.owner.text);
}

TEST_CASE("a store leaves no FIFO behind") {
  Place place;
  {
    LocalStore store(place.settings);
    const Claim claim = claim_on("k");
    REQUIRE(try_lock(store, claim));
    CHECK(files_in(place.settings.path, ".wait-") == 1);
    LocalStore waiter(place.settings);
    REQUIRE(std::holds_alternative<Refusal>(waiter.acquire(claim_on("k"), {true, {}}, {})));
    CHECK(files_in(place.settings.path, ".wait-") == 2);
    store.release(claim, {}, {});
  }
  CHECK(files_in(place.settings.path, "") == 1);
}

TEST_CASE("a sleeper is told of a hand-over, and of nothing when its time has come") {
  Place place;
  LocalStore store(place.settings);
  LocalStore other(place.settings);
  const Claim first = claim_on("k");
  const Claim second = claim_on("k");
  REQUIRE(try_lock(store, first));
  REQUIRE(std::holds_alternative<Refusal>(other.acquire(second, {true, {}}, {})));
  const auto soon = later(BootClock::now(), milliseconds(20));
  CHECK(other.sleep(second, soon, -1).why == Wake::Reason::due);
  Event interrupt;
  interrupt.raise();
  CHECK(other.sleep(second, never, interrupt.fd()).why == Wake::Reason::interrupted);
  store.release(first, {}, {});
  const Wake wake = other.sleep(second, never, -1);
  CHECK(wake.why == Wake::Reason::granted);
  REQUIRE(wake.grant);
  CHECK(wake.grant->fence.value > 0);
  CHECK(wake.grant->confirmed);
  CHECK(wake.grant->lease.valid_until == never);
  const auto holders = store.inspect({{first.key}, {}}, {}).at(0).holders;
  REQUIRE(holders.size() == 1);
  CHECK(!holders[0].lease_left);
}

TEST_CASE("an own directory is made with its parents for its user alone") {
  TempDir dir;
  const DirectorySettings settings{dir / "a/b/c", true};
  LocalStore store(settings);
  REQUIRE(try_lock(store, claim_on("k")));
  CHECK(mode_of(settings.path) == 0700);
  CHECK(mode_of(settings.path + "/k.dlock") == 0600);
  CHECK(store.name() == "local:" + settings.path);
}

TEST_CASE("an own directory and its parents can be entered, whatever the umask") {
  TempDir dir;
  const auto before = umask(0177);
  LocalStore store({dir / "a/b", true});
  umask(before);
  for (const char* made : {"a", "a/b"}) {
    CHECK(mode_of(dir / made) == 0700);
  }
}

TEST_CASE("an own directory that others may write, or that is a link, is refused") {
  TempDir dir;
  REQUIRE(mkdir((dir / "open").c_str(), 0700) == 0);
  REQUIRE(chmod((dir / "open").c_str(), 0777) == 0);
  const auto open = [&] { LocalStore store({dir / "open", true}); };
  CHECK(message_of(open, ErrorKind::host_refused).find("may be written by others") !=
        std::string::npos);
  REQUIRE(symlink("open", (dir / "link").c_str()) == 0);
  const auto link = [&] { LocalStore store({dir / "link", true}); };
  message_of(link, ErrorKind::host_refused);
}

TEST_CASE("an own directory of another user is refused") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can give a directory away");
    return;
  }
  TempDir dir;
  REQUIRE(mkdir((dir / "d").c_str(), 0700) == 0);
  REQUIRE(chown((dir / "d").c_str(), 65534, 65534) == 0);
  const auto use = [&] { LocalStore store({dir / "d", true}); };
  CHECK(message_of(use, ErrorKind::host_refused).find("another user") != std::string::npos);
}

TEST_CASE("a directory that was named must exist, and its mode decides who may use a key") {
  TempDir dir;
  const DirectorySettings settings{dir / "shared", false};
  message_of([&] { LocalStore store(settings); }, ErrorKind::host_refused);
  REQUIRE(mkdir(settings.path.c_str(), 0700) == 0);
  REQUIRE(chmod(settings.path.c_str(), 01777) == 0);
  LocalStore store(settings);
  REQUIRE(try_lock(store, claim_on("k")));
  CHECK(mode_of(settings.path + "/k.dlock") == 0666);
}

TEST_CASE("whoever may only read a directory that was named cannot lock a key's file") {
  TempDir dir;
  const DirectorySettings settings{dir / "shared", false};
  REQUIRE(mkdir(settings.path.c_str(), 0700) == 0);
  for (const auto& [of_directory, of_file] :
       {std::pair(0755u, 0600u), std::pair(0775u, 0660u), std::pair(0750u, 0600u)}) {
    REQUIRE(chmod(settings.path.c_str(), of_directory) == 0);
    const std::string key = std::to_string(of_directory);
    LocalStore store(settings);
    REQUIRE(try_lock(store, claim_on(key)));
    CHECK(mode_of(settings.path + "/" + key + ".dlock") == of_file);
  }
}

TEST_CASE("an unwritable directory is the host's refusal, named in the message") {
  Place place;
  LocalStore store(place.settings);
  std::filesystem::remove(place.settings.path);
  const auto use = [&] { store.acquire(claim_on("k"), {}, {}); };
  CHECK(message_of(use, ErrorKind::host_refused).find(place.settings.path) != std::string::npos);
}

TEST_CASE("a release goes past any number of dead waiters, and tells the one after the first") {
  for (const std::size_t dead : {0u, 1u, 15u, 16u, 17u, 40u, 47u, 48u, 49u, 110u}) {
    CAPTURE(dead);
    CHECK(in_one_of(5, [&] { return goes_past_dead(dead); }));
  }
}

TEST_CASE("one release lets in more shared waiters than this process may have files open") {
  CHECK(in_one_of(5, lets_in_many_shared));
}

TEST_CASE("a file that is no lock is left alone and named") {
  Place place;
  LocalStore store(place.settings);
  const std::vector<std::string> foreign{"hello\n", "dlock lock\n", std::string(4096, '\1')};
  for (const std::string& text : foreign) {
    write_file(place.settings.path + "/k.dlock", text);
    const auto use = [&] { store.acquire(claim_on("k"), {}, {}); };
    CHECK(message_of(use, ErrorKind::wrong_data).find("k.dlock") != std::string::npos);
    CHECK(read_file(place.settings.path + "/k.dlock") == text);
  }
}

TEST_CASE("the file of another key under this key's name is not taken for it") {
  Place place;
  LocalStore store(place.settings);
  REQUIRE(try_lock(store, claim_on("one")));
  std::filesystem::rename(place.settings.path + "/one.dlock", place.settings.path + "/two.dlock");
  message_of([&] { store.acquire(claim_on("two"), {}, {}); }, ErrorKind::wrong_data);
}

TEST_CASE("a new key's file takes away what was free for a week, and nothing younger or held") {
  Place place;
  LocalStore store(place.settings);
  const auto age = [&](const std::string& name, std::time_t days) {
    const std::time_t then = std::time(nullptr) - days * 86400;
    const timespec times[2] = {{then, 0}, {then, 0}};
    REQUIRE(utimensat(AT_FDCWD, (place.settings.path + "/" + name).c_str(), times, 0) == 0);
  };
  for (const char* key : {"old", "young", "held", "before-boot"}) {
    const Claim claim = claim_on(key);
    REQUIRE(try_lock(store, claim));
    if (key != std::string("held")) {
      store.release(claim, {}, {});
    }
  }
  date_before_boot(place.settings.path + "/before-boot.dlock");
  {
    // Holder and waiter are killed at the end of this scope.
    const auto state = [&] { return store.inspect({{{"dead"}}, {}}, {})[0]; };
    const auto ask = [&] {
      LocalStore theirs(place.settings);
      theirs.acquire(claim_on("dead"), {true, {}}, {});
      sleep_for_ever();
    };
    const Forked holder(ask);
    REQUIRE(eventually([&] { return !state().holders.empty(); }));
    const Forked waiter(ask);
    REQUIRE(eventually([&] { return !state().waiters.empty(); }));
  }
  age("dead.dlock", 8);
  age("old.dlock", 8);
  age("before-boot.dlock", 8);
  age("young.dlock", 6);
  age("held.dlock", 8);
  REQUIRE(mkfifo((place.settings.path + "/.wait-" + std::string(32, 'a')).c_str(), 0600) == 0);
  age(".wait-" + std::string(32, 'a'), 1);
  write_file(place.settings.path + "/notes", "mine");
  age("notes", 8);
  REQUIRE(try_lock(store, claim_on("new")));
  CHECK(files_in(place.settings.path, "old") == 0);
  CHECK(files_in(place.settings.path, "before-boot") == 0);
  CHECK(files_in(place.settings.path, "dead") == 0);
  CHECK(files_in(place.settings.path, "young") == 1);
  CHECK(files_in(place.settings.path, "held") == 1);
  CHECK(files_in(place.settings.path, "notes") == 1);
  CHECK(files_in(place.settings.path, ".wait-aaa") == 0);
}

TEST_CASE("what was free for a week goes in the end, however many others are there") {
  Place place;
  LocalStore store(place.settings);
  const auto file = [&](const std::string& name) { return place.settings.path + "/" + name; };
  for (int i = 0; i < 5000; ++i) write_file(file("young" + std::to_string(i) + ".dlock"), "");
  for (int i = 0; i < 20; ++i) {
    const std::string name = file("old" + std::to_string(i) + ".dlock");
    write_file(name, "");
    const std::time_t then = std::time(nullptr) - std::time_t{8} * 86400;
    const timespec times[2] = {{then, 0}, {then, 0}};
    REQUIRE(utimensat(AT_FDCWD, name.c_str(), times, 0) == 0);
  }
  for (int tries = 0; tries < 20'000 && files_in(place.settings.path, "old") > 0;) {
    for (int i = 0; i < 50; ++i, ++tries) store.collect_garbage();
  }
  CHECK(files_in(place.settings.path, "old") == 0);
  CHECK(files_in(place.settings.path, "young") == 5000);
}

TEST_CASE("a key's file that a killed process has left closed to others is opened to them") {
  TempDir dir;
  const DirectorySettings settings{dir / "shared", false};
  REQUIRE(mkdir(settings.path.c_str(), 0700) == 0);
  REQUIRE(chmod(settings.path.c_str(), 01777) == 0);
  const std::string name = settings.path + "/k.dlock";
  write_file(name, "");
  REQUIRE(chmod(name.c_str(), 0600) == 0);
  LocalStore store(settings);
  REQUIRE(try_lock(store, claim_on("k")));
  CHECK(mode_of(name) == 0666);
}

TEST_CASE("hosts that share a home are told apart by the machine id, or by the host name") {
  TempDir dir;
  write_file(dir / "id", "abc123\n");
  CHECK(host_id(dir / "id") == "abc123");
  CHECK(host_id(dir / "missing") != "");
  CHECK(host_id(dir / "missing").find('/') == std::string::npos);
}

TEST_CASE("hosts of one image that share a home have directories of their own") {
  const TempDir dir;
  const std::string first = dir / "home/locks/id";
  CHECK(directory_of_host(first, 1, "a") == first);
  CHECK(directory_of_host(first, 2, "b") == first + "-b");
  CHECK(directory_of_host(first, 2, "a") == first);  // it has restarted
  CHECK(directory_of_host(first, 1, "b") == first + "-b");
  CHECK(directory_of_host(first, 2, "c") == first);  // it was renamed
  CHECK(directory_of_host(first, 3, "a") == first + "-a");
  CHECK(directory_of_host(first, 0, "container") == first);
  CHECK(directory_of_host(first, 4, "c") == first);
}

TEST_CASE("a directory from before hosts were told apart is that of the first host that comes") {
  const TempDir dir;
  REQUIRE(mkdir((dir / "id").c_str(), 0700) == 0);
  write_file(dir / "id/k.dlock", "");
  CHECK(directory_of_host(dir / "id", 1, "a") == dir / "id");
  CHECK(directory_of_host(dir / "id", 2, "b") == dir / "id-b");
}

TEST_CASE("a waiter that becomes first because the one before it left watches the holder") {
  Stage stage;
  Forked holder([&] { stage.hold_and_stay("k"); });
  REQUIRE(eventually([&] { return stage.shared == 1; }));
  const Claim leaving = claim_on("k");
  REQUIRE(std::holds_alternative<Refusal>(stage.store.acquire(leaving, {true, {}}, {})));
  Forked next([&] { stage.hold_and_stay("k"); });
  REQUIRE(eventually([&] { return stage.waiting("k") == 2; }));
  REQUIRE(fall_asleep({next.pid()}));
  CHECK(stage.store.release(leaving, {}, {}).outcome == Released::left_queue);
  REQUIRE(fall_asleep({next.pid()}));
  holder.signal(SIGKILL);
  CHECK(eventually([&] { return stage.shared == 2; }, milliseconds(15'000)));
}

TEST_CASE("a stopped waiter that is handed the lock costs the others two seconds") {
  // On a busy machine, it may be longer now and then, but not in every try.
  CHECK(in_one_of(5, [] {
    Stage stage;
    const Claim first = claim_on("k");
    REQUIRE(try_lock(stage.store, first));
    Forked stopped([&] { stage.hold_and_stay("k"); });
    REQUIRE(eventually([&] { return stage.waiting("k") == 1; }));
    Forked next([&] { stage.hold_and_stay("k"); });
    REQUIRE(eventually([&] { return stage.waiting("k") == 2; }));
    // Stop it while it sleeps, as it may have the key's file locked when awake.
    REQUIRE(fall_asleep({stopped.pid(), next.pid()}));
    stopped.signal(SIGSTOP);
    REQUIRE(eventually([&] { return is_in_state('T', stopped.pid()); }));
    const Deadline freed = BootClock::now();
    stage.store.release(first, {}, {});
    REQUIRE(eventually([&] { return stage.shared == 1; }));
    const milliseconds waited = passed_since(freed);
    CHECK(waited >= milliseconds(1900));
    return waited < stretched(milliseconds(2300));
  }));
}

TEST_CASE("a killed holder with a floor leaves the key kept if its command had started") {
  for (const bool started : {true, false}) {
    CAPTURE(started);
    Stage stage;
    Forked holder([&] {
      LocalStore own(stage.settings);
      Claim claim = claim_on("k");
      claim.floor = milliseconds(60'000);
      wait_for_lock(own, claim);
      setpgid(0, 0);
      if (started) own.command_started(claim, getpid());
      ++stage.shared;
      sleep_for_ever();
    });
    REQUIRE(eventually([&] { return stage.shared == 1; }));
    holder.signal(SIGKILL);
    holder.wait();
    CHECK(stage.held("k") == started);
    if (!started) continue;
    const auto refusal = std::get<Refusal>(stage.store.acquire(claim_on("k"), {}, {}));
    REQUIRE(refusal.held_by.size() == 1);
    CHECK(refusal.held_by[0].kept);
  }
}

TEST_CASE("what a process took to be renewed outlives it") {
  Stage stage;
  Forked holder([&] {
    LocalStore own(stage.settings);
    Claim claim = claim_on("k");
    claim.upkeep = Liveness::renewal;
    wait_for_lock(own, claim);
  });
  CHECK(holder.wait() == 0);
  CHECK(stage.held("k"));
}

TEST_CASE("a hold that lives with another process outlives the one that asked, and ends with it") {
  Stage stage;
  Forked other(sleep_for_ever);
  Forked asker([&] {
    LocalStore own(stage.settings);
    const Claim claim = claim_on("k");
    wait_for_lock(own, claim);
    if (!own.live_with(claim, other.pid())) _exit(2);
  });
  CHECK(asker.wait() == 0);
  CHECK(stage.held("k"));
  Forked waiter([&] { stage.hold_and_stay("k"); });
  REQUIRE(eventually([&] { return stage.waiting("k") == 1; }));
  other.signal(SIGKILL);
  CHECK(eventually([&] { return stage.shared == 1; }));
}

TEST_CASE("a hold that has gone cannot be made to live with another process") {
  Stage stage;
  CHECK(!stage.store.live_with(claim_on("k"), getpid()));
  const Claim claim = claim_on("k");
  wait_for_lock(stage.store, claim);
  stage.store.evict(claim.key, {std::nullopt, Who{}}, {});
  CHECK(!stage.store.live_with(claim, getpid()));
}

TEST_CASE("a store left to a forked process is cleared up by that one alone") {
  Stage stage;
  const Claim claim = claim_on("k");
  std::optional<LocalStore> first(stage.settings);
  wait_for_lock(*first, claim);
  Forked second([&] {
    first->leave_to(getpid());
    while (stage.shared == 0) usleep(1000);
    first->release(claim, {}, {});
    first.reset();
  });
  first->leave_to(second.pid());
  first.reset();
  CHECK(files_in(stage.settings.path, "") == 2);  // the key's file and the FIFO
  stage.shared = 1;
  CHECK(second.wait() == 0);
  CHECK(files_in(stage.settings.path, "") == 1);
}
