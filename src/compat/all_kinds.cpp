#include "compat/all_kinds.hpp"

#include <algorithm>

#include "base/glob.hpp"
#include "lock/store.hpp"
#include "redis/scan.hpp"

namespace dlock {

std::vector<FoundLock> all_foreign_locks(RedisTransport& servers,
                                         const std::vector<std::string>& globs,
                                         const std::string& own_prefix,
                                         const CallOptions& call_options) {
  const auto is_wanted = [&](const std::string& name) {
    return !name.starts_with(own_prefix) && matches_any(name, globs);
  };
  std::vector<FoundLock> found;
  servers.visit_all(call_options, [&](RedisClient& client) {
    for (const char* type : types_of_locks) {
      Scan scan(client, {"TYPE", type}, call_options);
      while (!scan.has_ended()) {
        auto names = scan.next();
        std::erase_if(names, [&](const std::string& name) { return !is_wanted(name); });
        const CallOptions one_page = at_most(silence_of_a_dead_server, call_options);
        const auto locks = foreign_locks(client, type, names, one_page);
        for (std::size_t i = 0; i < names.size(); ++i) {
          if (locks[i]) found.push_back({names[i], *locks[i]});
        }
      }
    }
  });
  const auto by_name = [](const auto& a, const auto& b) { return a.key < b.key; };
  const auto same_name = [](const auto& a, const auto& b) { return a.key == b.key; };
  std::stable_sort(found.begin(), found.end(), by_name);
  found.erase(std::unique(found.begin(), found.end(), same_name), found.end());
  return found;
}

}  // namespace dlock
