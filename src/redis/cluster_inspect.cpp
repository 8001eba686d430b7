#include <algorithm>
#include <iterator>
#include <map>

#include "base/error.hpp"
#include "redis/backoff.hpp"
#include "redis/cluster_store.hpp"
#include "redis/lock_states.hpp"

namespace dlock {

std::vector<KeyState> ClusterStore::inspect(const Query& query, const CallOptions& call_options) {
  const auto read_all = [&](const auto& keys, const auto& requests) {
    return read(keys, requests, call_options);
  };
  const auto find_all = [&](const auto& globs) { return find(globs, call_options); };
  return inspect_locks(query, {terms_.prefix, name(), read_all, find_all});
}

/// Keys of one node go there in one write. What turns out to be elsewhere, or to be on its way, is
/// asked for there one by one.
std::vector<Reply> ClusterStore::read(const std::vector<LockKey>& keys,
                                      const std::vector<Request>& requests,
                                      const CallOptions& call_options) {
  std::map<std::optional<NodeAddress>, std::vector<std::size_t>> keys_at;
  for (std::size_t i = 0; i < keys.size(); ++i)
    keys_at[router_.map().owner(slot(keys[i]))].push_back(i);
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
    auto answers = router_.read_at(slot(keys[some.front()]), of_some, call_options);
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (redirection_in(answers[i])) {
        const int its_slot = slot(keys[which[i] / requests_a_key]);
        answers[i] = router_.read_at(its_slot, {of_some[i]}, call_options).front();
      }
      replies[which[i]] = std::move(answers[i]);
    }
  }
  return replies;
}

std::vector<LockKey> ClusterStore::find(const std::vector<std::string>& globs,
                                        const CallOptions& call_options) {
  Backoff pauses(call_options);
  while (true) {
    try {
      return find_once(globs, call_options);
    } catch (const Error& error) {
      const bool may_heal = error.trouble() == ErrorKind::unavailable && router_.was_reached();
      if (!may_heal || !pauses.fit()) throw;
    }
    pauses.take();
  }
}

std::vector<LockKey> ClusterStore::find_once(const std::vector<std::string>& globs,
                                             const CallOptions& call_options) {
  std::vector<LockKey> keys;
  router_.at_each_master(call_options, [&](RedisClient& node, const CallOptions& share) {
    auto found = static_cast<RedisStore&>(node).matching_keys(globs, share);
    std::move(found.begin(), found.end(), std::back_inserter(keys));
  });
  // A key on its way may be met at both ends.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

}  // namespace dlock
