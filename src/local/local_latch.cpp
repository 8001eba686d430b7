#include <algorithm>

#include "base/wait.hpp"
#include "local/collect.hpp"
#include "local/latch_file.hpp"
#include "local/local_store.hpp"

namespace dlock {

LatchState LocalStore::open_latch(const LockKey& key, const LatchTerms& terms,
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
  // Before the look, so that whatever comes after it is still there to poll.
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
