#include "local/open_key.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "local/key_file.hpp"
#include "rule/table_text.hpp"

namespace dlock {
namespace {

/// The text of a table has all waiters where they are not more than this, ...
constexpr std::size_t most_in_text = 32;
/// ... and of a longer queue so many: then a good number of hand-overs passes before the rest is
/// read, and each of them has little to read.
constexpr std::size_t usual_in_text = 16;

}  // namespace

void WaiterTail::load(std::size_t most, KeyFile& file, const std::string& where, LockTable& table) {
  if (!was_read_ && stored_.length > 0) {
    text_ = file.read_apart({stored_.offset, stored_.length}, stored_.hash);
  }
  was_read_ = true;
  const auto left = parse_waiters(std::string_view(text_).substr(parsed_), most, where, table);
  parsed_ = text_.size() - left.size();
}

std::string WaiterTail::write_beside(const LockKey& key, const LockTable& table, KeyFile& file) {
  if (!was_read_ && stored_.length > 0) return table_text(key, table, SIZE_MAX, stored_);
  const bool fits = table.queue.size() <= most_in_text;
  const std::size_t first = fits ? table.queue.size() : usual_in_text;
  const MoreWaiters more = write(waiter_lines(table, first) + text_.substr(parsed_), file);
  return table_text(key, table, first, more);
}

/// Lines that go on unchanged stay where they are: waiters leave at the front and join at the end.
MoreWaiters WaiterTail::write(const std::string& next, KeyFile& file) const {
  if (next.empty()) return {};
  Region there;
  const auto first_line = std::string_view(next).substr(0, next.find('\n') + 1);
  const auto at = text_.find(first_line);
  if (at != text_.npos && next.starts_with(std::string_view(text_).substr(at))) {
    there = {stored_.offset + at, text_.size() - at};
  }
  const Region region = file.write_apart(next, there);
  return {region.offset, region.length, block_hash(next)};
}

Now now_here() {
  const auto since_boot = BootClock::now().time_since_epoch();
  return Now{std::chrono::duration_cast<microseconds>(since_boot), wall_now().time_since_epoch()};
}

bool FifoNotifier::wake(const WaiterEntry& waiter, const Message& message) {
  return knock(waiter, std::holds_alternative<GrantMessage>(message) ? News::own : News::of_others);
}

bool FifoNotifier::tell_moved(const WaiterEntry& waiter) { return knock(waiter, News::of_others); }

bool FifoNotifier::knock(const WaiterEntry& waiter, News news) {
  auto reached = reach(directory_, waiter.backing.mailbox);
  // A mailbox that another user closed to us: its owner finds out when it next asks.
  if (reached.how == Reached::How::closed) return true;
  if (reached.how != Reached::How::listening) {
    remove_mailbox(directory_, waiter.backing.mailbox);
    return false;
  }
  woken_.insert(waiter.token);
  write_later(std::move(reached.fd), news);
  return true;
}

void FifoNotifier::tell(const HolderIdentity& thrown_out) {
  auto reached = reach(directory_, thrown_out.mailbox);
  if (reached.fd) write_later(std::move(reached.fd), News::own);
}

/// There may be more of them than this process may have files open. Those that are told early wait
/// at the key's file.
void FifoNotifier::write_later(Fd mailbox, News news) {
  constexpr std::size_t most_open = 64;
  if (open_.size() >= most_open) {
    deliver();
    open_.clear();
    delivered_ = 0;
  }
  open_.emplace_back(std::move(mailbox), news);
}

void FifoNotifier::deliver() {
  // A waiter that is granted the lock wants the key's file at once: it is told last and nothing is
  // closed yet, so that the file is free by the time it runs.
  const auto first = open_.begin() + static_cast<std::ptrdiff_t>(delivered_);
  std::stable_partition(first, open_.end(),
                        [](const auto& each) { return each.second == News::of_others; });
  for (; delivered_ < open_.size(); ++delivered_) {
    write_news(open_[delivered_].first, open_[delivered_].second);
  }
}

std::optional<OpenKey> OpenKey::open(const Directory& directory, const LockKey& key,
                                     KeyFile::Use use, const Token& self,
                                     const CallOptions& call_options) {
  auto file = KeyFile::open(directory, key_file_name(key), use, call_options);
  if (!file) return std::nullopt;
  OpenKey open(directory, key, std::move(*file));
  open.load(self);
  return open;
}

void OpenKey::load(const Token& self) {
  const auto text = file_.read();
  if (!text.empty()) {
    const std::string where = directory_.shown(key_file_name(key_));
    auto named = parse_table(text, where);
    if (named.key != key_) {
      throw Error(ErrorKind::wrong_data,
                  where + " is for another key whose file has the same name");
    }
    table = std::move(named.table);
    file_.keep_apart({named.more.offset, named.more.length});
    tail_.found(named.more);
    // The renewal and the release of a holder look at the first waiters alone.
    const bool same_boot = file_.written_in() == KeyFile::Boot::current;
    if (!same_boot || table.find_hold(self) == nullptr) {
      tail_.load(SIZE_MAX, file_, where, table);
    }
  }
  now = now_here();
  if (is_of_earlier_boot(table, file_.written_in(), directory_, now.lease_clock))
    take(restart_after_boot(table, now.lease_clock));
  take(refresh(table, directory_, now.lease_clock));
  take(drop_dead_before(table, directory_, self));
  before_ = Standing(table);
}

void OpenKey::take(Refreshed refreshed) {
  if (undecided_.empty()) undecided_ = std::move(refreshed.undecided);
  changed_ = changed_ || refreshed.changed;
  std::move(refreshed.left_mailboxes.begin(), refreshed.left_mailboxes.end(),
            std::back_inserter(left_mailboxes_));
}

OpenKey::Standing::Standing(const LockTable& table)
    : holds(table.holds), last_fence(table.last_fence), last_ask(table.last_ask) {
  queue.reserve(table.queue.size());
  for (const WaiterEntry& waiter : table.queue) append(waiter);
}

void OpenKey::Standing::append(const WaiterEntry& waiter) {
  queue.push_back({block_hash(waiter.token.text), waiter.ticket, waiter.seen, waiter.told});
}

void OpenKey::load_waiters(std::size_t most) {
  const std::size_t loaded = table.queue.size();
  tail_.load(most, file_, directory_.shown(key_file_name(key_)), table);
  std::for_each(table.queue.begin() + static_cast<std::ptrdiff_t>(loaded), table.queue.end(),
                [&](const WaiterEntry& waiter) { before_.append(waiter); });
  take(refresh(table, directory_, now.lease_clock));
}

/// Then the waiter after it, which is not loaded, has the same predecessor as before.
bool OpenKey::last_loaded_has_stayed() const {
  return !table.queue.empty() && !before_.queue.empty() &&
         block_hash(table.queue.back().token.text) == before_.queue.back().token;
}

/// Each waiter watches the one before it. True if some turned out to be dead, so that the rules
/// have to look again.
bool OpenKey::notify_new_predecessors(const Token& self) {
  constexpr std::uint64_t nobody = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> stood_behind;
  stood_behind.reserve(before_.queue.size());
  std::uint64_t ahead = nobody;
  for (const auto& place : before_.queue) {
    stood_behind[place.token] = ahead;
    ahead = place.token;
  }
  bool dropped = false;
  ahead = nobody;
  for (auto waiter = table.queue.begin(); waiter != table.queue.end();) {
    const auto token = block_hash(waiter->token.text);
    const auto known = stood_behind.find(token);
    const bool moved = known != stood_behind.end() && known->second != ahead;
    if (moved && waiter->token != self && !knocks.was_woken(waiter->token) &&
        !knocks.tell_moved(*waiter)) {
      dropped = true;
      waiter = table.queue.erase(waiter);
      continue;
    }
    ahead = token;
    ++waiter;
  }
  return dropped;
}

void OpenKey::work_on_queue(const Token& self, bool more) {
  while (more || notify_new_predecessors(self)) more = table.admit_waiters(now, knocks);
}

void OpenKey::save(const Token& self, bool more) {
  work_on_queue(self, more);
  for (std::size_t wanted = 32; tail_.has_more() && !last_loaded_has_stayed(); wanted *= 2) {
    load_waiters(wanted);
    work_on_queue(self, true);
  }
  // Before the new state counts: were this process killed in between, those woken would find the
  // state of before and, among those that block, a holder that has gone.
  if (changed_ || !(Standing(table) == before_)) {
    const std::string text = tail_.write_beside(key_, table, file_);
    file_.write(text, [this] { knocks.deliver(); });
  }
  for (const std::string& mailbox : left_mailboxes_) remove_mailbox(directory_, mailbox);
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
