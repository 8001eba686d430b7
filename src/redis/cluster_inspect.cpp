#include <algorithm>
#include <iterator>
#include <map>

#include "base/error.hpp"
#include "redis/cluster_store.hpp"
#include "redis/lock_states.hpp"
#include "redis/pauses.hpp"
#include "redis/server_error.hpp"

namespace dlock {

std::vector<KeyState> ClusterStore::inspect(const Query& query, const Patience& patience) {
  const auto read_all = [&](const auto& keys, const auto& requests) {
    return read(keys, requests, patience);
  };
  const auto find_all = [&](const auto& globs) { return find(globs, patience); };
  return inspect_locks(query, {terms_.prefix, name_, read_all, find_all});
}

/// Keys of one node go there in one write. What turns out to be elsewhere, or to be on its way, is
/// asked for there one by one.
std::vector<Reply> ClusterStore::read(const std::vector<LockKey>& keys,
                                      const std::vector<Request>& requests,
                                      const Patience& patience) {
  std::map<std::optional<Announced>, std::vector<std::size_t>> keys_at;
  for (std::size_t i = 0; i < keys.size(); ++i) keys_at[map_.owner(slot(keys[i]))].push_back(i);
  std::vector<Reply> replies(requests.size());
  for (const auto& [place, some] : keys_at) {
    std::vector<std::size_t> which;
    std::vector<Request> of_some;
    for (const std::size_t key : some) {
      for (std::size_t i = key * requests_a_key; i < (key + 1) * requests_a_key; ++i) {
        which.push_back(i);
        of_some.push_back(requests[i]);
      }
    }
    auto answers = read_at(slot(keys[some.front()]), of_some, patience);
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (redirection_in(answers[i])) {
        const int its_slot = slot(keys[which[i] / requests_a_key]);
        answers[i] = read_at(its_slot, {of_some[i]}, patience).front();
      }
      replies[which[i]] = std::move(answers[i]);
    }
  }
  return replies;
}

std::vector<Reply> ClusterStore::read_at(int slot, const std::vector<Request>& requests,
                                         const Patience& patience) {
  std::vector<Reply> replies;
  at_slot(slot, patience, [&](RedisStore& node, const Patience& share) {
    replies = node.read(requests, share);
    const auto redirection = redirection_in(replies.front());
    if (!redirection) return;
    throw Redirected(*redirection, node.name() + ": " + server_error(replies.front()).what());
  });
  return replies;
}

std::vector<LockKey> ClusterStore::find(const std::vector<std::string>& globs,
                                        const Patience& patience) {
  Pauses pauses(patience);
  while (true) {
    try {
      return find_once(globs, patience);
    } catch (const Error& error) {
      const bool may_heal = error.trouble() == Trouble::unavailable && was_reached();
      if (!may_heal || !pauses.fit()) throw;
    }
    pauses.take();
  }
}

std::vector<LockKey> ClusterStore::find_once(const std::vector<std::string>& globs,
                                             const Patience& patience) {
  refresh(std::nullopt, patience);
  if (const int unserved = map_.unserved(); unserved > 0) {
    throw Error(Trouble::unavailable,
                name_ + ": " + std::to_string(unserved) +
                    " of its slots have no node, so nobody can tell all locks");
  }
  std::vector<LockKey> keys;
  for (const Announced& master : map_.masters()) {
    const Patience share{later(BootClock::now(), left_until(patience.deadline) / 2),
                         patience.interrupt_fd};
    auto found = node_at(master).matching_keys(globs, share);
    std::move(found.begin(), found.end(), std::back_inserter(keys));
  }
  // A key on its way may be met at both ends.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

}  // namespace dlock
