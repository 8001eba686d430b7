#include "compat/key_kind.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "compat/layout.hpp"
#include "compat/lock_driver.hpp"
#include "lock/store.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

/// The replies to the questions about one key.
struct Look {
  std::string name;
  std::string type;
  std::vector<Reply> replies;  ///< PTTL first
};

Request peek(const std::string& type, const std::string& name) {
  if (type == "string") return {"GETRANGE", name, "0", "199"};
  if (type == "hash") return {"HSCAN", name, "0", "COUNT", "4"};
  if (type == "list") return {"LLEN", name};
  return {"ZRANGE", name, "0", "1"};
}

std::optional<ForeignLock> in_string(const Look& look) {
  const auto seen = recognise_string(look.name, look.replies[1].text);
  if (!seen) return std::nullopt;
  ForeignLock lock{"lock", foreign_holder(seen->library, look.replies[0])};
  lock.holder.who.host = seen->host;
  if (seen->since) lock.holder.acquired_at = *seen->since;
  return lock;
}

/// Returns the fields and values in a page of HSCAN.
std::vector<std::pair<std::string, std::string>> fields_of(const Reply& page) {
  std::vector<std::pair<std::string, std::string>> fields;
  if (!page.is_array(2)) return fields;
  const auto& items = page.items[1].items;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    fields.emplace_back(items[i].text, items[i + 1].text);
  }
  return fields;
}

bool is_read_write_lock(const std::vector<std::pair<std::string, std::string>>& fields) {
  constexpr std::string_view writer = ":write";
  bool has_mode = false;
  for (const auto& [field, value] : fields) {
    if (field == "mode") {
      has_mode = value == "read" || value == "write";
      if (!has_mode) return false;
      continue;
    }
    std::string_view owner = field;
    if (owner.ends_with(writer)) owner.remove_suffix(writer.size());
    if (!is_redisson_owner(owner)) return false;
  }
  return has_mode && fields.size() > 1;
}

std::optional<ForeignLock> in_hash(const Look& look) {
  const auto fields = fields_of(look.replies[1]);
  const auto any_ends_with = [&](std::string_view end) {
    return std::any_of(fields.begin(), fields.end(),
                       [&](const auto& field) { return field.first.ends_with(end); });
  };
  const auto lock = [&](const char* kind, const char* library) {
    return ForeignLock{kind, foreign_holder(library, look.replies[0])};
  };
  if (look.name.ends_with(":LOCKED")) return lock("lock of a job", "sidekiq-unique-jobs");
  if (any_ends_with(":expire_time")) return lock("multi-lock", "Redisson");
  if (is_read_write_lock(fields)) {
    const bool has_writer = any_ends_with(":write");
    ForeignLock seen = lock(has_writer ? "write lock" : "read lock", "Redisson");
    if (!has_writer) seen.holder.limit = no_limit;
    return seen;
  }
  if (fields.size() == 1 && is_redisson_owner(fields[0].first)) {
    return lock("lock", "Redisson or dlock");
  }
  return std::nullopt;
}

std::optional<ForeignLock> in_sorted_set(const Look& look) {
  const auto& members = look.replies[1].items;
  const auto is_member = [](const Reply& member) { return is_symfony_member(member.text); };
  if (members.empty()) return std::nullopt;
  const auto all = std::all_of(members.begin(), members.end(), is_member);
  const bool is_exclusive = std::any_of(members.begin(), members.end(), [](const Reply& member) {
    return member.text == "__write__";
  });
  if (all) {
    ForeignLock lock{is_exclusive ? "lock" : "read lock",
                     foreign_holder("Symfony Lock or dlock", look.replies[0])};
    if (!is_exclusive) lock.holder.limit = no_limit;
    return lock;
  }
  const auto seen = recognise_string(look.name, members[0].text);
  if (seen && seen->library == "DistributedLock") {
    return ForeignLock{"semaphore", foreign_holder(seen->library, look.replies[0])};
  }
  return std::nullopt;
}

std::optional<ForeignLock> in_list(const Look& look) {
  if (!look.name.starts_with("redisson_lock_queue:")) return std::nullopt;
  return ForeignLock{"queue of a fair lock", foreign_holder("Redisson", look.replies[0])};
}

std::optional<ForeignLock> lock_in(const Look& look) {
  for (const Reply& reply : look.replies) {
    if (reply.is_error()) return std::nullopt;
  }
  constexpr std::size_t questions = 2;
  constexpr std::int64_t no_key = -2;
  if (look.replies.size() < questions || look.replies[0].integer == no_key) return std::nullopt;
  if (look.type == "string") return in_string(look);
  if (look.type == "hash") return in_hash(look);
  if (look.type == "list") return in_list(look);
  return in_sorted_set(look);
}

}  // namespace

std::vector<std::optional<ForeignLock>> foreign_locks(RedisTransport& servers,
                                                      const std::string& type,
                                                      const std::vector<std::string>& names,
                                                      const CallOptions& call_options) {
  if (names.empty()) return {};
  std::vector<Request> requests;
  for (const std::string& name : names) {
    requests.push_back({"PTTL", name});
    requests.push_back(peek(type, name));
  }
  const auto replies = servers.read(names, requests, call_options);
  std::vector<std::optional<ForeignLock>> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    found.push_back(lock_in({names[i], type, {replies[2 * i], replies[2 * i + 1]}}));
  }
  return found;
}

std::string what_is(RedisTransport& servers, const std::string& name,
                    const CallOptions& call_options) {
  const std::string type = servers.read({name}, {{"TYPE", name}}, call_options).front().text;
  const bool may_be_lock = std::find(std::begin(types_of_locks), std::end(types_of_locks), type) !=
                           std::end(types_of_locks);
  const auto lock =
      may_be_lock ? foreign_locks(servers, type, {name}, call_options).front() : std::nullopt;
  const std::string seems =
      lock ? ", which looks like a " + lock->kind + " of " + lock->holder.library : "";
  return "it is a " + (type == "zset" ? "sorted set" : escaped(type)) + seems +
         ", and not a lock of this layout";
}

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
      scan(client, {"TYPE", type}, call_options, [&](std::vector<std::string> names) {
        std::erase_if(names, [&](const std::string& name) { return !is_wanted(name); });
        const CallOptions one_page = at_most(silence_of_a_dead_server, call_options);
        const auto locks = foreign_locks(client, type, names, one_page);
        for (std::size_t i = 0; i < names.size(); ++i) {
          if (locks[i]) found.push_back({names[i], *locks[i]});
        }
      });
    }
  });
  const auto by_name = [](const auto& a, const auto& b) { return a.key < b.key; };
  const auto same_name = [](const auto& a, const auto& b) { return a.key == b.key; };
  std::stable_sort(found.begin(), found.end(), by_name);
  found.erase(std::unique(found.begin(), found.end(), same_name), found.end());
  return found;
}

}  // namespace dlock
