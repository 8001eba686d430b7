#include "local/local_store.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <random>
#include <span>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "local/dead_holders.hpp"
#include "local/file_names.hpp"
#include "local/key_file.hpp"
#include "local/latch_file.hpp"
#include "local/open_key.hpp"
#include "lock/work.hpp"
#include "rule/lock_table.hpp"

namespace dlock {
namespace {

/// How long dlock waits for the lock of a key's file; acquire() may wait longer. If a thousand
/// processes start at once, each has this lock for some milliseconds.
constexpr std::chrono::seconds longest_call{20};
constexpr milliseconds shortest_call{100};
/// If /proc hides the command's processes from a waiter, the waiter looks this often.
constexpr milliseconds hidden_group_pause{20};
/// If only living processes block the key, their end wakes the waiter; it still asks this often, as
/// a sign of life.
constexpr std::chrono::seconds ask_again_at_last{25};
/// look() does not wake a waiter for a smaller change of the remaining time.
constexpr milliseconds noteworthy{5};

/// The process of the command, a child of the dlock that runs it.
pid_t command_pid_of(const HoldEntry& hold) {
  const HolderIdentity& backing = hold.backing;
  if (backing.command.pid <= 0 || backing.command.pid_space != own_process().pid_space) return 0;
  const Owner owner = owner_in(hold.token);
  for (const pid_t child : children_of(backing.process.pid).value_or(std::vector<pid_t>{})) {
    if (works_for(child, owner)) return child;
  }
  return 0;
}

/// Names a process of the command if its dlock is dead.
void name_orphan(Holder& hold, const HoldEntry& entry) {
  if (!entry.inside() || !entry.backing.by_process) return;
  if (process_life(entry.backing.process) != Life::over) return;
  const auto running = running_processes(work_of(entry));
  if (running.empty()) return;
  hold.orphan = running.front();
  hold.orphan_name = command_name(hold.orphan);
}

/// The holders on this host, with no lease for those that live by their process.
std::vector<Holder> local_holders(const std::vector<HoldEntry>& entries, const Now& now) {
  std::vector<Holder> holds;
  for (const HoldEntry& entry : entries) {
    Holder hold = hold_from(entry, now);
    hold.who.command_pid = command_pid_of(entry);
    if (lives_by_process(entry, now.lease_clock)) hold.lease_left.reset();
    name_orphan(hold, entry);
    holds.push_back(std::move(hold));
  }
  return holders_of(std::move(holds));
}

Refusal as_refusal(const Refused& refused, std::optional<milliseconds> ends_in, const Now& now) {
  Refusal refusal = refusal_from(refused, local_holders(refused.holds, now));
  if (!refused.holds.empty()) refusal.ask_again_in = ends_in.value_or(ask_again_at_last);
  return refusal;
}

Lease lease_of(bool by_process, Deadline sent, milliseconds length) {
  return Lease{length, by_process ? never : valid_until(sent, length)};
}

/// Whether the token needs the FIFO, which wakes a waiter, and shows all pid namespaces that the
/// process of a hold is alive.
bool needs_mailbox(LockTable& table, const Token& token) {
  if (table.find_waiter(token) != table.queue.end()) return true;
  const HoldEntry* hold = table.find_hold(token);
  return hold != nullptr && hold->inside() && hold->backing.by_process;
}

/// Whether a glob considers this file: a plain file that this user may read.
bool can_be_ours(const Directory& directory, const std::string& name) {
  struct stat info {};
  return fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(info.st_mode) && faccessat(directory.fd(), name.c_str(), R_OK, AT_EACCESS) == 0;
}

/// Adds a lock's holders or last grant, and its waiters, to the state of its key.
void describe(const OpenKey& lock, const Directory& directory, KeyState& state) {
  state.holders = local_holders(lock.table.live_holds(lock.now), lock.now);
  if (state.holders.empty()) state.last = recent_grant(lock.table, lock.now);
  for (const WaiterEntry& entry : lock.table.queue) {
    if (is_gone(directory, entry.backing.mailbox)) continue;
    state.waiters.push_back(waiter_from(entry, state.waiters.size() + 1, lock.now));
  }
}

constexpr std::size_t most_names_looked_at = 64;
constexpr std::time_t fence_life_seconds = 7 * 24 * 3600;
/// A younger FIFO may have been created just now, and its owner may not have opened it yet.
constexpr std::time_t mailbox_youth_seconds = 60;

void remove_unused(const Directory& directory, const std::string& name) {
  constexpr auto use = KeyFile::Use::change;
  const CallOptions at_once{BootClock::now(), -1};
  try {
    if (is_latch_file_name(name)) {
      auto file = LatchFile::open_file(directory, name, use, at_once);
      if (file && !file->latch) file->file.remove();
    } else {
      auto key = OpenKey::open_file(directory, name, use, Token{}, at_once);
      if (key && key->is_unused()) key->file.remove();
    }
  } catch (const Error&) {
    // The file is in use, foreign, or not ours to open; that does not concern the current request.
  }
}

/// A random sample of the names that dlock creates and removes. A directory keeps its order, so a
/// fixed choice would always return the same names. Usually only the beginning of a very large
/// directory is read, because the read delays the request for a new key.
std::vector<std::string> some_names_in(const Directory& directory) {
  constexpr std::size_t beginning = 4096;
  std::minstd_rand random(static_cast<std::uint32_t>(BootClock::now().time_since_epoch().count()));
  auto names = directory.names(random() % 4 == 0 ? SIZE_MAX : beginning);
  std::erase_if(names, [](const std::string& name) {
    return !is_mailbox_name(name) && !is_key_file_name(name) && !is_latch_file_name(name);
  });
  std::vector<std::string> some;
  std::sample(names.begin(), names.end(), std::back_inserter(some), most_names_looked_at, random);
  return some;
}

CallOptions call_options_until(Deadline until, int cancel_fd) {
  const auto now = BootClock::now();
  return CallOptions{std::clamp(until, later(now, shortest_call), later(now, longest_call)),
                     cancel_fd};
}

}  // namespace

LocalStore::LocalStore(const DirectorySettings& settings)
    : directory_(settings), mailbox_(directory_) {}

Answer LocalStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& asked) {
  // The limit is independent of the lease: other processes need only microseconds, but may be many.
  const Deadline least = later(BootClock::now(), longest_call);
  const CallOptions call_options{std::max(asked.deadline, least), asked.cancel_fd};
  const Deadline sent = BootClock::now();
  const bool by_process = claim.upkeep == Liveness::process;
  const HolderIdentity backing{
      by_process, by_process ? own_process() : ProcessId{}, {}, mailbox_.name()};
  std::optional<OpenKey> key =
      OpenKey::open(directory_, claim.key, KeyFile::Use::create, claim.token, call_options);
  const auto outcome = key->table.acquire(claim, ask, backing, key->now, key->notifier);
  if (std::holds_alternative<Refused>(outcome) && !key->undecided().empty()) {
    throw Error(ErrorKind::host_refused, escaped(claim.key.text) + ": " + key->undecided() +
                                             ": look from the host itself, or evict it with "
                                             "dlock release --force");
  }
  if (needs_mailbox(key->table, claim.token)) mailbox_.open();
  key->save(claim.token);
  const Now now = key->now;
  const auto predecessor = key->table.predecessor(now);
  const auto ends_in = key->until_next_end();
  const bool created = key->file.created();
  key.reset();
  if (created) collect_garbage();
  if (const auto* granted = std::get_if<Granted>(&outcome)) {
    Grant grant{granted->fence, lease_of(by_process, sent, granted->lease)};
    grant.predecessor = predecessor;
    return grant;
  }
  return as_refusal(std::get<Refused>(outcome), ends_in, now);
}

/// Looks at the key for a waiter; returns why the waiter's sleep ends, or what it must watch.
std::variant<Wake, QueueWatch> LocalStore::look(const Claim& claim, Deadline until, int cancel_fd) {
  const Deadline sent = BootClock::now();
  auto key = OpenKey::open(directory_, claim.key, KeyFile::Use::change, claim.token,
                           call_options_until(until, cancel_fd));
  if (!key) return Wake{};
  // This look also confirms a hold that was handed over: a second request would double the work.
  key->table.renew(claim.token, std::nullopt, key->now, key->notifier);
  key->save(claim.token);
  const HoldEntry* own = key->table.find_hold(claim.token);
  // A provisional hold was handed over by this look, as the holder's process had ended: the next
  // request confirms it.
  if (own != nullptr && own->flag == Flag::held) {
    Grant grant{own->fence, lease_of(own->backing.by_process, sent, own->lease)};
    grant.predecessor = key->table.predecessor(key->now);
    return Wake{Wake::Reason::granted, {}, grant};
  }
  if (key->table.find_waiter(claim.token) == key->table.queue.end()) return Wake{};
  QueueWatch watch = watch_before(key->table, directory_, claim.token);
  if (const auto left = key->until_next_end(); left && watch.first) {
    const Deadline ends_at = later(Deadline(key->now.lease_clock), *left);
    if (later(ends_at, noteworthy) < until) return Wake{Wake::Reason::changed, ends_at};
  }
  return watch;
}

Wake LocalStore::sleep(const Claim& claim, Deadline until, int cancel_fd) {
  while (true) {
    mailbox_.take();  // before the look, so that later notifications can still be polled
    std::variant<Wake, QueueWatch> seen;
    try {
      seen = look(claim, until, cancel_fd);
    } catch (const Error& error) {
      // Another process had the file's lock, and `cancel_fd` ended the wait for it.
      if (error.kind() != ErrorKind::interrupted) throw;
      return Wake{Wake::Reason::interrupted, {}};
    }
    if (const auto* wake = std::get_if<Wake>(&seen)) return *wake;
    const auto& watch = std::get<QueueWatch>(seen);
    std::vector<pollfd> fds{{cancel_fd, POLLIN, 0}, {mailbox_.fd(), POLLIN, 0}};
    for (const Fd& end : watch.ends) fds.push_back({end.get(), POLLIN, 0});
    const auto pause = watch.look_again ? later(BootClock::now(), hidden_group_pause) : never;
    poll_until(fds, std::min(until, pause));
    if (fds.front().revents != 0) return Wake{Wake::Reason::interrupted, {}};
    if (BootClock::now() >= until) return Wake{};
    // Pause before the next look, because the client that was just granted the lock needs the key's
    // file and a processor now. If holds are short, the next notification is our own grant.
    if (mailbox_.take() == News::of_others) {
      poll_until(std::span(fds).first(2), std::min(until, later(BootClock::now(), noteworthy)));
    }
  }
}

Renewed LocalStore::renew(const Claim& claim, const RenewalOptions& terms,
                          const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  const Token& token = claim.token;
  auto open = OpenKey::open(directory_, claim.key, KeyFile::Use::change, token, call_options);
  if (!open) return {};
  const auto lease = open->table.renew(token, terms.ttl, open->now, open->notifier);
  open->save(token);
  if (!lease) return {std::nullopt, open->table.evicted_by(token)};
  const HoldEntry* own = open->table.find_hold(token);
  if (own->backing.mailbox == mailbox_.name()) mailbox_.open();
  open->file.touch();
  return {
      Grant{own->fence, lease_of(own->backing.by_process, sent, *lease)}, {}, own->stop_asked_by};
}

ReleaseResult LocalStore::release(const Claim& claim, const ReleaseOptions& how,
                                  const CallOptions& call_options) {
  const Token& token = claim.token;
  auto open = OpenKey::open(directory_, claim.key, KeyFile::Use::change, token, call_options);
  if (!open) return {};
  const auto outcome = open->table.release(token, how, open->now, open->notifier);
  open->save(token);
  if (outcome != Released::not_held) return {outcome};
  return {outcome, open->table.evicted_by(token)};
}

std::vector<Holder> LocalStore::evict(const LockKey& key, const Eviction& how,
                                      const CallOptions& call_options) {
  auto open = OpenKey::open(directory_, key, KeyFile::Use::change, Token{}, call_options);
  if (!open) return {};
  const auto evicted = open->table.evict(how, open->now, open->notifier);
  for (const HoldEntry& hold : evicted) open->notifier.tell_holder(hold.backing);
  open->save(Token{});
  return local_holders(evicted, open->now);
}

std::vector<KeyState> LocalStore::inspect(const Query& query, const CallOptions& call_options) {
  std::vector<KeyState> states;
  for (const LockKey& key : query.keys) {
    KeyState& state = states.emplace_back();
    state.key = key;
    const auto lock = OpenKey::open(directory_, key, KeyFile::Use::read, Token{}, call_options);
    if (lock) describe(*lock, directory_, state);
    const auto latch = LatchFile::open(directory_, key, KeyFile::Use::read, call_options);
    if (latch && latch->latch) state.latch = latch->state();
  }
  if (query.globs.empty()) return states;
  for (auto& [key, state] : matching_states(query.globs, call_options)) {
    if (std::find(query.keys.begin(), query.keys.end(), key) != query.keys.end()) continue;
    state.key = key;
    if (query.lists(state)) states.push_back(std::move(state));
  }
  return states;
}

/// Reads the files of the directory, and skips those that are not locks: only a key that the user
/// has named must be a lock.
std::map<LockKey, KeyState> LocalStore::matching_states(const std::vector<std::string>& globs,
                                                        const CallOptions& call_options) const {
  std::map<LockKey, KeyState> states;
  for (const std::string& name : directory_.names()) {
    if (!is_key_file_name(name) && !is_latch_file_name(name)) continue;
    const auto key = key_of_file_name(name);
    if (key && !matches_any(key->text, globs)) continue;
    if (!can_be_ours(directory_, name)) continue;
    try {
      if (is_key_file_name(name)) {
        const auto lock =
            OpenKey::open_file(directory_, name, KeyFile::Use::read, Token{}, call_options);
        const bool named = lock && !key_fault(lock->key.text) && key_file_name(lock->key) == name;
        if (named) describe(*lock, directory_, states[lock->key]);
      } else {
        const auto file = LatchFile::open_file(directory_, name, KeyFile::Use::read, call_options);
        const bool named = file && file->latch && latch_file_name(file->latch->key) == name;
        if (named) states[file->latch->key].latch = file->state();
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::wrong_data) throw;
    }
  }
  std::erase_if(states, [&](const auto& each) { return !matches_any(each.first.text, globs); });
  return states;
}

bool LocalStore::command_started(const Claim& claim, pid_t group) {
  return change_process(claim, &HolderIdentity::command, group);
}

bool LocalStore::live_with(const Claim& claim, pid_t pid) {
  return change_process(claim, &HolderIdentity::process, pid);
}

bool LocalStore::change_process(const Claim& claim, ProcessId HolderIdentity::*which, pid_t pid) {
  if (claim.upkeep == Liveness::renewal) return true;
  auto key = OpenKey::open(directory_, claim.key, KeyFile::Use::change, claim.token,
                           call_options_until(never, -1));
  HoldEntry* own = key ? key->table.find_hold(claim.token) : nullptr;
  if (own == nullptr || !own->inside()) return false;
  own->backing.*which = process_now(pid);
  key->save(claim.token);
  return true;
}

void LocalStore::collect_garbage() const {
  // A user who may not list the directory leaves the cleanup to others.
  if (faccessat(directory_.fd(), ".", R_OK, AT_EACCESS) != 0) return;
  const auto now = std::time(nullptr);
  for (const std::string& name : some_names_in(directory_)) {
    const bool mailbox = is_mailbox_name(name);
    struct stat info {};
    if (fstatat(directory_.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const auto age = now - info.st_mtime;
    if (mailbox && age > mailbox_youth_seconds && is_gone(directory_, name)) {
      remove_mailbox(directory_, name);
    }
    if (!mailbox && age > fence_life_seconds) remove_unused(directory_, name);
  }
}

Fd LocalStore::changes() {
  Fd events(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  // inspect() itself opens and closes FIFOs, so those events are not watched.
  constexpr auto writes = IN_MODIFY | IN_DELETE | IN_MOVED_TO;
  if (events && inotify_add_watch(events.get(), directory_.path().c_str(), writes) < 0) {
    events.reset();
  }
  return events;
}

std::string LocalStore::name() const { return "local:" + escaped(directory_.path()); }

}  // namespace dlock
