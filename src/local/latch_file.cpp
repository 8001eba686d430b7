#include "local/latch_file.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "local/collect.hpp"
#include "local/key_file.hpp"
#include "local/local_store.hpp"
#include "local/wake_fifo.hpp"

namespace dlock {
namespace {

constexpr std::string_view latch_begins = "dlock-latch 1";
constexpr std::string_view latch_ends = "end";

[[noreturn]] void refuse_as_latch(const std::string& where) {
  throw Error(ErrorKind::wrong_data,
              where + " holds no latch of this version of dlock; if it is not needed, remove it");
}

/// Removes the first line from `text` and returns it.
std::string_view take_line(std::string_view& text, const std::string& where) {
  if (text.find('\n') == std::string_view::npos) refuse_as_latch(where);
  return take_until(text, '\n');
}

/// Adds one line to `named`; false if it is unknown.
bool take_up(NamedLatch& named, std::string_view line) {
  auto value = line;
  const auto word = take_until(value, ' ');
  StoredLatch& latch = named.latch;
  if (word == "key") {
    named.key.text = percent_decoded(value);
  } else if (word == "arrived") {
    latch.arrived.push_back({std::string(value)});
  } else if (word == "waits") {
    latch.mailboxes.emplace_back(value);
  } else {
    const auto number = parse_number(value, 0, INT64_MAX);
    if (!number) return false;
    if (word == "count") latch.count = *number;
    if (word == "ends") latch.ends = microseconds(*number);
    if (word == "wall") latch.wall_ends = microseconds(*number);
    return word == "count" || word == "ends" || word == "wall";
  }
  return true;
}

NamedLatch parse_latch(std::string_view text, const std::string& where) {
  NamedLatch named;
  if (take_line(text, where) != latch_begins) refuse_as_latch(where);
  for (auto line = take_line(text, where); line != latch_ends; line = take_line(text, where)) {
    if (!take_up(named, line)) refuse_as_latch(where);
  }
  if (!text.empty() || named.latch.count == 0) refuse_as_latch(where);
  return named;
}

std::string latch_text(const LockKey& key, const StoredLatch& latch) {
  std::string text(latch_begins);
  text += "\nkey " + percent_encoded(key.text);
  text += "\ncount " + std::to_string(latch.count);
  text += "\nends " + std::to_string(latch.ends.count());
  text += "\nwall " + std::to_string(latch.wall_ends.count());
  for (const ArrivalId& id : latch.arrived) text += "\narrived " + id.text;
  for (const std::string& mailbox : latch.mailboxes) text += "\nwaits " + mailbox;
  return text + "\n" + std::string(latch_ends) + "\n";
}

}  // namespace

LatchState StoredLatch::state(const Now& now) const {
  const auto left = std::max(ends - now.lease_clock, microseconds(0));
  return {count, static_cast<std::int64_t>(arrived.size()), std::chrono::ceil<milliseconds>(left)};
}

std::optional<NamedLatch> read_latch(KeyFile& file, const Now& now, const std::string& where) {
  const auto text = file.read();
  if (text.empty()) return std::nullopt;
  NamedLatch named = parse_latch(text, where);
  StoredLatch& latch = named.latch;
  const bool same_clock = file.written_in() == KeyFile::Boot::current;
  if (!same_clock) latch.ends = now.lease_clock + (latch.wall_ends - now.wall);
  return named;
}

std::optional<LatchFile> LatchFile::open(const Directory& directory, const LockKey& key,
                                         KeyFile::Use use, const CallOptions& call_options) {
  auto file = KeyFile::open(directory, latch_file_name(key), use, call_options);
  if (!file) return std::nullopt;
  LatchFile open(directory, key, std::move(*file));
  open.load();
  return open;
}

void LatchFile::load() {
  now = now_here();
  const std::string where = directory_.shown(latch_file_name(key_));
  auto named = read_latch(file_, now, where);
  if (!named) return;
  if (named->key != key_) {
    throw Error(ErrorKind::wrong_data, where + " is for another key whose file has the same name");
  }
  if (named->latch.ends > now.lease_clock) latch = std::move(named->latch);
}

void LatchFile::save(bool wake) {
  std::erase_if(latch->mailboxes, [&](const std::string& mailbox) {
    const Reached reached = reach(directory_, mailbox);
    // A FIFO that this user may not open can still have its owner.
    const bool gone = reached.how == Reached::How::nobody || reached.how == Reached::How::missing;
    if (gone) remove_mailbox(directory_, mailbox);
    return gone;
  });
  file_.write(latch_text(key_, *latch), [&] {
    if (!wake) return;
    // Open one at a time: there may be more FIFOs than this process may have files open.
    for (const std::string& mailbox : latch->mailboxes) {
      const Reached reached = reach(directory_, mailbox);
      if (reached.fd) write_news(reached.fd, News::own);
    }
  });
}

LatchState LocalStore::open_latch(const LockKey& key, const LatchOptions& terms,
                                  const CallOptions& call_options) {
  auto file = LatchFile::open(directory_, key, KeyFile::Use::create, call_options);
  if (!file->latch) file->latch = StoredLatch{terms.count, {}, {}, {}, {}};
  StoredLatch& latch = *file->latch;
  const auto ends = file->now.lease_clock + terms.ttl;
  if (latch.count == terms.count && latch.ends < ends) {
    latch.ends = ends;
    latch.wall_ends = file->now.wall + terms.ttl;
    file->save(false);
  }
  auto state = latch.state(file->now);
  const bool created = file->created();
  file.reset();
  if (created) collect_garbage(directory_);
  return state;
}

std::optional<LatchState> LocalStore::arrive(const LockKey& key, const ArrivalId& id,
                                             const CallOptions& call_options) {
  auto file = LatchFile::open(directory_, key, KeyFile::Use::change, call_options);
  if (!file) return std::nullopt;
  if (!file->latch) {
    file->remove();
    return std::nullopt;
  }
  auto& arrived = file->latch->arrived;
  const bool was_open = file->latch->state(file->now).open();
  if (!was_open && std::find(arrived.begin(), arrived.end(), id) == arrived.end()) {
    arrived.push_back(id);
    file->save(file->latch->state(file->now).open());
  }
  return file->latch->state(file->now);
}

std::optional<LatchState> LocalStore::look_at_latch(const LockKey& key, bool listen,
                                                    const CallOptions& call_options) {
  const auto use = listen ? KeyFile::Use::change : KeyFile::Use::read;
  // Empty the FIFO before the look, so that notifications after it can still be polled.
  mailbox_.take();
  auto file = LatchFile::open(directory_, key, use, call_options);
  if (!file || !file->latch) return std::nullopt;
  const LatchState state = file->latch->state(file->now);
  auto& mailboxes = file->latch->mailboxes;
  const bool known =
      std::find(mailboxes.begin(), mailboxes.end(), mailbox_.name()) != mailboxes.end();
  if (listen && !state.open() && !known) {
    mailbox_.open();
    mailboxes.push_back(mailbox_.name());
    file->save(false);
  }
  return state;
}

std::optional<LatchState> LocalStore::latch_of(const LockKey& key,
                                               const CallOptions& call_options) const {
  const auto file = LatchFile::open(directory_, key, KeyFile::Use::read, call_options);
  return file && file->latch ? std::optional(file->latch->state(file->now)) : std::nullopt;
}

Wake::Reason LocalStore::sleep_at_latch(const LockKey&, Deadline until, int cancel_fd) {
  pollfd fds[] = {{cancel_fd, POLLIN, 0}, {mailbox_.fd(), POLLIN, 0}};
  if (poll_until(fds, until) == 0) return Wake::Reason::due;
  return fds[0].revents != 0 ? Wake::Reason::interrupted : Wake::Reason::changed;
}

}  // namespace dlock
