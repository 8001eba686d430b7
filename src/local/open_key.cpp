#include "local/open_key.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "local/file_names.hpp"
#include "rule/table_format.hpp"

namespace dlock {
namespace {

/// The text of a table has the whole queue if it has at most this many waiters.
constexpr std::size_t most_in_text = 32;
/// For a longer queue, the text has this many waiters: enough for many hand-overs before the tail
/// must be read, and few enough that a hand-over has little to read.
constexpr std::size_t usual_in_text = 16;

}  // namespace

Now now_here() {
  const auto since_boot = BootClock::now().time_since_epoch();
  return Now{std::chrono::duration_cast<microseconds>(since_boot), wall_now().time_since_epoch()};
}

std::optional<OpenKey> OpenKey::open(const Directory& directory, const LockKey& key,
                                     KeyFile::Use use, const Token& self,
                                     const CallOptions& call_options) {
  const std::string name = key_file_name(key);
  auto open = open_file(directory, name, use, self, call_options);
  if (open && open->key.text.empty()) open->key = key;
  if (open && open->key != key) {
    throw Error(ErrorKind::wrong_data,
                directory.shown(name) + " is for another key whose file has the same name");
  }
  return open;
}

std::optional<OpenKey> OpenKey::open_file(const Directory& directory, const std::string& name,
                                          KeyFile::Use use, const Token& self,
                                          const CallOptions& call_options) {
  auto file = KeyFile::open(directory, name, use, call_options);
  if (!file) return std::nullopt;
  OpenKey open(directory, std::move(*file));
  open.load(directory.shown(name), self);
  return open;
}

void OpenKey::load(const std::string& where, const Token& self) {
  const auto text = file.read();
  if (!text.empty()) {
    auto named = parse_table(text, where);
    key = std::move(named.key);
    table = std::move(named.table);
    // A holder that renews or releases needs only the first waiters.
    const bool same_boot = file.written_in() == KeyFile::Boot::current;
    if (!same_boot || table.find_hold(self) == nullptr) load_tail(where);
  }
  now = now_here();
  if (is_of_earlier_boot(table, file.written_in(), directory_, now.lease_clock)) {
    restart_after_boot(table, directory_, now.lease_clock);
    changed_ = true;
  }
  refresh_for(self);
  before_ = table;
}

/// Appends the waiters in the tail to the queue.
void OpenKey::load_tail(const std::string& where) {
  parse_waiters(file.read_tail(), where, table);
  tail_is_loaded_ = true;
}

void OpenKey::refresh_for(const Token& self) {
  auto refreshed = refresh(table, directory_, now.lease_clock, self);
  if (undecided_.empty()) undecided_ = std::move(refreshed.undecided);
  changed_ = changed_ || refreshed.changed;
}

/// Notifies waiters whose predecessor has changed, because each watches its predecessor. Returns
/// true if it has dropped dead waiters, so that the rules must run again.
bool OpenKey::notify_or_drop(const Token& self) {
  const auto& before = before_.queue;
  auto known = before.begin();  // only `self` joins, all others stay in order
  bool dropped = false;
  Token ahead;
  for (auto waiter = table.queue.begin(); waiter != table.queue.end();) {
    if (waiter->token != self) {
      known = std::find_if(known, before.end(),
                           [&](const WaiterEntry& each) { return each.token == waiter->token; });
      const bool moved = ahead != (known == before.begin() ? Token{} : (known - 1)->token);
      if (moved && !notifier.tell_moved(*waiter)) {
        dropped = true;
        waiter = table.queue.erase(waiter);
        continue;
      }
    }
    ahead = waiter->token;
    ++waiter;
  }
  return dropped;
}

void OpenKey::notify_new_predecessors(const Token& self) {
  while (notify_or_drop(self)) table.admit_waiters(now, notifier);
}

void OpenKey::save(const Token& self) {
  notify_new_predecessors(self);
  // If the last waiter before the tail has left, the tail's first waiter must watch another one.
  const auto& queue = table.queue;
  auto& before = before_.queue;
  const bool last_has_stayed =
      !before.empty() && !queue.empty() && queue.back().token == before.back().token;
  if (!tail_is_loaded_ && !last_has_stayed) {
    const auto loaded = static_cast<std::ptrdiff_t>(queue.size());
    load_tail(directory_.shown(key_file_name(key)));
    before.insert(before.end(), queue.begin() + loaded, queue.end());
    refresh_for(self);
    table.admit_waiters(now, notifier);
    notify_new_predecessors(self);
  }
  // Notify before the new state is valid. If this process is killed in between, the woken waiters
  // find the old state, in which a holder has ended, and decide by that.
  if (changed_ || table != before_) write([this] { notifier.deliver(); });
}

void OpenKey::write(const std::function<void()>& just_before) {
  std::size_t in_text = table.queue.size();
  std::optional<std::string> tail;
  if (tail_is_loaded_) {
    if (in_text > most_in_text) in_text = usual_in_text;
    tail = waiter_lines(table, in_text);
  }
  file.write(table_text(key, table, in_text), tail, just_before);
}

bool OpenKey::is_unused() const {
  return table.live_holds(now).empty() &&
         std::all_of(table.queue.begin(), table.queue.end(), [&](const WaiterEntry& waiter) {
           return is_gone(directory_, waiter.backing.mailbox);
         });
}

std::optional<milliseconds> OpenKey::until_next_end() const {
  std::optional<milliseconds> least;
  for (const HoldEntry& hold : table.live_holds(now)) {
    if (lives_by_process(hold, now.lease_clock)) continue;
    const auto left = std::chrono::ceil<milliseconds>(left_of(hold, now.lease_clock));
    least = std::min(least.value_or(left), left);
  }
  return least;
}

}  // namespace dlock
