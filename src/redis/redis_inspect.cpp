#include <fnmatch.h>

#include <algorithm>

#include "base/error.hpp"
#include "redis/lock_states.hpp"
#include "redis/redis_store.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

bool matches_any(const std::string& text, const std::vector<std::string>& globs) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
    return fnmatch(glob.c_str(), text.c_str(), 0) == 0;
  });
}

}  // namespace

std::vector<LockKey> RedisStore::matching_keys(const std::vector<std::string>& globs,
                                               const CallOptions& call_options) {
  std::vector<LockKey> keys;
  std::string cursor = "0";
  do {
    // A server whose cursor never comes to its end is left at the deadline.
    if (left_until(call_options.deadline) == milliseconds(0)) {
      throw_unavailable(name() + ": SCAN did not come to its end in time");
    }
    const Request scan{"SCAN", cursor, "MATCH", scan_pattern(terms_.prefix), "COUNT", "1000"};
    const Reply page = read({scan}, call_options).front();
    if (page.is_error()) {
      const Error error = server_error(page);
      throw error.reworded(name() + ": " + error.what());
    }
    if (!page.is_array(2)) throw Error(ErrorKind::unavailable, name() + ": no answer to SCAN");
    cursor = page.items[0].text;
    for (const Reply& name : page.items[1].items) {
      const auto key = key_of(terms_.prefix, name.text);
      if (key && matches_any(key->text, globs)) keys.push_back(*key);
    }
  } while (cursor != "0");
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

std::vector<KeyState> RedisStore::inspect(const Query& query, const CallOptions& call_options) {
  const auto read_all = [&](const auto&, const auto& requests) {
    return read(requests, call_options);
  };
  const auto find = [&](const auto& globs) { return matching_keys(globs, call_options); };
  return inspect_locks(query, {terms_.prefix, name(), read_all, find});
}

}  // namespace dlock
