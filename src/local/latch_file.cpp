#include "local/latch_file.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "local/file_names.hpp"
#include "local/local_store.hpp"
#include "local/wake_fifo.hpp"

namespace dlock {
namespace {

constexpr std::string_view format = "dlock-latch";
constexpr std::string_view version = "1";

[[noreturn]] void refuse_as_latch(const std::string& where) {
  throw Error(ErrorKind::wrong_data,
              where + " holds no latch of this version of dlock; if it is not needed, remove it");
}

/// Parses a first line with the latch, and one for each arrival and waiter.
StoredLatch parse_latch(std::string_view text, const std::string& where) {
  StoredLatch latch;
  auto first = take_until(text, '\n');
  const bool ours = take_until(first, ' ') == format && take_until(first, ' ') == version;
  latch.key.text = percent_decoded(take_until(first, ' '));
  const auto count = parse_number(take_until(first, ' '), 1, largest_latch);
  const auto ends = parse_number(take_until(first, ' '), 0, latest_time.count());
  const auto wall_ends = parse_number(first, 0, latest_time.count());
  if (!ours || !count || !ends || !wall_ends) refuse_as_latch(where);
  latch.count = *count;
  latch.ends = microseconds(*ends);
  latch.wall_ends = microseconds(*wall_ends);
  while (!text.empty()) {
    auto value = take_until(text, '\n');
    const auto word = take_until(value, ' ');
    if (word == "arrived") {
      latch.arrived.push_back({std::string(value)});
    } else if (word == "waits") {
      latch.mailboxes.emplace_back(value);
    } else {
      refuse_as_latch(where);
    }
  }
  return latch;
}

std::string latch_text(const StoredLatch& latch) {
  std::string text(format);
  text += " " + std::string(version) + " " + percent_encoded(latch.key.text) + " " +
          std::to_string(latch.count) + " " + std::to_string(latch.ends.count()) + " " +
          std::to_string(latch.wall_ends.count()) + "\n";
  for (const ArrivalId& id : latch.arrived) text += "arrived " + id.text + "\n";
  for (const std::string& mailbox : latch.mailboxes) text += "waits " + mailbox + "\n";
  return text;
}

}  // namespace

std::optional<LatchFile> LatchFile::open(const Directory& directory, const LockKey& key,
                                         KeyFile::Use use, const CallOptions& call_options) {
  const std::string name = latch_file_name(key);
  auto open = open_file(directory, name, use, call_options);
  if (open && open->latch && open->latch->key != key) {
    throw Error(ErrorKind::wrong_data,
                directory.shown(name) + " is for another key whose file has the same name");
  }
  return open;
}

std::optional<LatchFile> LatchFile::open_file(const Directory& directory, const std::string& name,
                                              KeyFile::Use use, const CallOptions& call_options) {
  auto file = KeyFile::open(directory, name, use, call_options);
  if (!file) return std::nullopt;
  LatchFile open(directory, std::move(*file));
  open.now = now_here();
  const auto text = open.file.read();
  if (text.empty()) return open;
  StoredLatch latch = parse_latch(text, directory.shown(name));
  const bool same_clock = open.file.written_in() == KeyFile::Boot::current;
  if (!same_clock) latch.ends = open.now.lease_clock + (latch.wall_ends - open.now.wall);
  if (latch.ends > open.now.lease_clock) open.latch = std::move(latch);
  return open;
}

LatchState LatchFile::state() const {
  const auto left = std::chrono::ceil<milliseconds>(latch->ends - now.lease_clock);
  return {latch->count, static_cast<std::int64_t>(latch->arrived.size()),
          std::max(left, milliseconds(0))};
}

void LatchFile::save(bool wake) {
  std::erase_if(latch->mailboxes, [&](const std::string& mailbox) {
    const bool gone = is_gone(directory_, mailbox);
    if (gone) remove_mailbox(directory_, mailbox);
    return gone;
  });
  file.write(latch_text(*latch), std::nullopt, [&] {
    if (!wake) return;
    for (const std::string& mailbox : latch->mailboxes) notify(directory_, mailbox, News::own);
  });
}

LatchState LocalStore::open_latch(const LockKey& key, const LatchOptions& terms,
                                  const CallOptions& call_options) {
  auto file = LatchFile::open(directory_, key, KeyFile::Use::create, call_options);
  if (!file->latch) file->latch = StoredLatch{key, terms.count, {}, {}, {}, {}};
  StoredLatch& latch = *file->latch;
  const auto ends = file->now.lease_clock + terms.ttl;
  if (latch.count == terms.count && latch.ends < ends) {
    latch.ends = ends;
    latch.wall_ends = file->now.wall + terms.ttl;
    file->save(false);
  }
  const LatchState state = file->state();
  const bool created = file->file.created();
  file.reset();
  if (created) collect_garbage();
  return state;
}

std::optional<LatchState> LocalStore::arrive(const LockKey& key, const ArrivalId& id,
                                             const CallOptions& call_options) {
  auto file = LatchFile::open(directory_, key, KeyFile::Use::change, call_options);
  if (!file || !file->latch) return std::nullopt;
  auto& arrived = file->latch->arrived;
  const bool was_open = file->state().open();
  if (!was_open && std::find(arrived.begin(), arrived.end(), id) == arrived.end()) {
    arrived.push_back(id);
    file->save(file->state().open());
  }
  return file->state();
}

std::optional<LatchState> LocalStore::look_at_latch(const LockKey& key, bool listen,
                                                    const CallOptions& call_options) {
  const auto use = listen ? KeyFile::Use::change : KeyFile::Use::read;
  // Empty the FIFO before the look, so that notifications after it can still be polled.
  mailbox_.take();
  auto file = LatchFile::open(directory_, key, use, call_options);
  if (!file || !file->latch) return std::nullopt;
  const LatchState state = file->state();
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

Wake::Reason LocalStore::sleep_at_latch(const LockKey&, Deadline until, int cancel_fd) {
  pollfd fds[] = {{cancel_fd, POLLIN, 0}, {mailbox_.fd(), POLLIN, 0}};
  if (poll_until(fds, until) == 0) return Wake::Reason::due;
  return fds[0].revents != 0 ? Wake::Reason::interrupted : Wake::Reason::changed;
}

}  // namespace dlock
