#include "compat/all_kinds.hpp"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.hpp"
#include "lock/store.hpp"

namespace dlock {
namespace {

/// For one request: the time for all keys is for servers with many, and not for silent ones.
CallOptions soon_within(const CallOptions& all) {
  CallOptions one = all;
  one.deadline = std::min(all.deadline, short_call().deadline);
  return one;
}

/// Of one type on one server.
class Scan {
 public:
  Scan(RedisClient& client, const char* type, const CallOptions& call_options)
      : client_(client), type_(type), call_options_(call_options) {}

  /// The next names; nothing at the end.
  std::vector<std::string> next() {
    if (has_ended_) return {};
    if (left_until(call_options_.deadline) == milliseconds(0)) {
      throw_unavailable(client_.server_name() + ": SCAN did not come to its end in time");
    }
    const Request scan{"SCAN", cursor_, "COUNT", "1000", "TYPE", type_};
    const Reply page = client_.read({scan}, soon_within(call_options_)).front();
    check_reply(client_, "", page, [] { return std::string(); });
    if (!page.is_array(2)) throw_unavailable(client_.server_name() + ": no answer to SCAN");
    cursor_ = page.items[0].text;
    has_ended_ = cursor_ == "0";
    std::vector<std::string> names;
    for (const Reply& name : page.items[1].items) names.push_back(name.text);
    return names;
  }
  bool has_ended() const { return has_ended_; }

 private:
  RedisClient& client_;
  std::string type_;
  CallOptions call_options_;
  std::string cursor_ = "0";
  bool has_ended_ = false;
};

}  // namespace

std::vector<FoundLock> all_foreign_locks(KeyServers& servers, const std::vector<std::string>& globs,
                                         const std::string& own_prefix,
                                         const CallOptions& call_options) {
  const auto is_wanted = [&](const std::string& name) {
    return !name.starts_with(own_prefix) &&
           std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
             return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
           });
  };
  std::vector<FoundLock> found;
  servers.at_each(call_options, [&](RedisClient& client, const CallOptions& share) {
    for (const char* type : types_of_locks) {
      Scan scan(client, type, share);
      while (!scan.has_ended()) {
        auto names = scan.next();
        std::erase_if(names, [&](const std::string& name) { return !is_wanted(name); });
        const auto locks = foreign_locks(client, type, names, soon_within(share));
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
