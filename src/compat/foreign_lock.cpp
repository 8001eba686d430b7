#include "compat/foreign_lock.hpp"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.hpp"
#include "base/text.hpp"
#include "lock/store.hpp"
#include "redis/redis_store.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

/// The types of keys that libraries use for locks.
constexpr const char* types_of_locks[] = {"string", "hash", "zset", "list"};

constexpr std::string_view digits = "0123456789";
constexpr std::string_view lower_hex = "0123456789abcdef";
constexpr std::string_view upper_hex = "0123456789ABCDEF";
constexpr std::string_view base64url =
    "-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::string_view alphanumeric = base64url.substr(2);
constexpr std::string_view base64 =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/";
constexpr std::string_view bytes = "";

/// A format of values that identifies a library, by itself or together with the key.
struct ValueFormat {
  const char* library;
  std::string_view letters;  ///< the value consists of these; `bytes`: any bytes but UTF-8
  std::size_t size;
  std::string_view end = "";         ///< after the letters
  std::string_view key_begins = "";  ///< how the key begins; other keys may hold such values too
};

constexpr std::size_t size_of_hex_id = 32;

constexpr ValueFormat value_formats[] = {
    {"node-redlock or redlock-universal", lower_hex, size_of_hex_id},
    {"redsync", base64, 22, "=="},
    {"python-redis-lock", base64, 24, "", "lock:"},
    {"redlock-cpp", upper_hex, 40},
    {"Laravel", alphanumeric, 16},
    {"redis-plus-plus", alphanumeric, 20},
    {"dlock, redislock or redlock-py", base64url, 22},
    {"rslock", bytes, 20},
    {"rueidislock", bytes, 24, "", "rueidislock:"},
};

bool is_made_of(std::string_view text, std::string_view letters, std::size_t size) {
  return text.size() == size && text.find_first_not_of(letters) == std::string_view::npos;
}

bool has_format(std::string_view key, std::string_view value, const ValueFormat& format) {
  if (!key.starts_with(format.key_begins) || !value.ends_with(format.end)) return false;
  value.remove_suffix(format.end.size());
  if (format.letters != bytes) return is_made_of(value, format.letters, format.size);
  return value.size() == format.size && !is_utf8(value);
}

bool is_uuid(std::string_view text) {
  std::string hex(text);
  for (const std::size_t at : {8U, 12U, 16U, 20U}) {
    if (at >= hex.size() || hex[at] != '-') return false;
    hex.erase(at, 1);
  }
  return is_made_of(hex, lower_hex, size_of_hex_id);
}

const char* library_of_uuid(std::string_view key) {
  if (key.starts_with("redlock:")) return "RedLock.net or pottery";
  if (key.starts_with("mutex:")) return "redis-semaphore";
  if (key.find(':') != std::string_view::npos) return "Spring, redlock-rb or aioredlock";
  return "redlock-rb or aioredlock";
}

/// The time in the 32 hex digits of redis-py, a UUID of version 1, which counts units of 100 ns
/// since 1582-10-15 (RFC 9562, 5.1). Nothing for other digits: one in 64 random values looks like
/// this version, but almost none of these contains a likely time.
std::optional<WallTime> time_of_uuid1(const std::string& hex) {
  constexpr std::uint64_t until_1970 = 0x01b21dd213814000;
  constexpr std::uint64_t ticks_of_a_microsecond = 10;
  if (hex[12] != '1' || std::string_view("89ab").find(hex[16]) == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string high_to_low = hex.substr(13, 3) + hex.substr(8, 4) + hex.substr(0, 8);
  const std::uint64_t ticks = std::stoull(high_to_low, nullptr, 16);
  if (ticks < until_1970) return std::nullopt;
  const auto since_1970 = static_cast<std::int64_t>((ticks - until_1970) / ticks_of_a_microsecond);
  const WallTime since{microseconds(since_1970)};
  const bool is_likely = since <= wall_now() + std::chrono::hours(24) &&
                         since > wall_now() - std::chrono::hours(24 * 3650);
  return is_likely ? std::optional(since) : std::nullopt;
}

/// Parses `2026-01-02T03:04:05.678Z`; the fraction may be missing.
std::optional<WallTime> time_from(const std::string& text) {
  tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr || !text.ends_with('Z')) return std::nullopt;
  int fraction = 0;
  const char* const end = text.c_str() + text.size();
  if (*rest == '.') std::from_chars(rest + 1, std::min(rest + 4, end), fraction);
  return WallTime(std::chrono::seconds(timegm(&parts)) + milliseconds(fraction));
}

/// Adds the time and the host in `ADDED:2026-01-02T03:04:05.678Z@host:uuid` of ShedLock.
void add_from_shedlock(Holder& holder, std::string_view value) {
  take_until(value, ':');
  if (const auto since = time_from(std::string(take_until(value, '@')))) {
    holder.acquired_at = *since;
  }
  holder.who.host = std::string(value.substr(0, value.rfind(':')));
}

/// The host in `host_pid_32hex` of DistributedLock; a waiting writer adds a suffix.
std::optional<std::string> host_of_distributed_lock(std::string_view value) {
  constexpr std::string_view waiting = "_WRITERWAITING";
  if (value.ends_with(waiting)) value.remove_suffix(waiting.size());
  const auto id = value.rfind('_');
  if (id == std::string_view::npos || id == 0) return std::nullopt;
  const auto pid = value.rfind('_', id - 1);
  if (pid == std::string_view::npos || pid + 1 == id) return std::nullopt;
  const bool is_format = is_made_of(value.substr(id + 1), lower_hex, size_of_hex_id) &&
                         is_made_of(value.substr(pid + 1, id - pid - 1), digits, id - pid - 1);
  return is_format ? std::optional(std::string(value.substr(0, pid))) : std::nullopt;
}

bool is_read_write_lock(const Fields& fields) {
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

/// The kind of a lock, its library, and whether several clients may hold it.
struct Kind {
  const char* name;
  const char* library;
  bool is_shared = false;
};

std::optional<Kind> kind_of_hash(const KeyLook& look) {
  const Fields fields = fields_of(look.contents);
  const auto any_ends_with = [&](std::string_view end) {
    return std::any_of(fields.begin(), fields.end(),
                       [&](const auto& field) { return field.first.ends_with(end); });
  };
  if (fields.size() == 1 && is_redisson_owner(fields[0].first)) {
    return Kind{"lock", redisson_library};
  }
  if (look.name.ends_with(":LOCKED")) return Kind{"lock of a job", "sidekiq-unique-jobs"};
  if (any_ends_with(":expire_time")) return Kind{"multi-lock", "Redisson"};
  if (is_read_write_lock(fields)) {
    if (any_ends_with(":write")) return Kind{"write lock", "Redisson"};
    return Kind{"read lock", "Redisson", true};
  }
  return std::nullopt;
}

std::optional<Kind> kind_of_sorted_set(const KeyLook& look) {
  const auto& members = look.contents.items;
  if (members.empty()) return std::nullopt;
  const auto is_member = [](const Reply& member) { return is_symfony_member(member.text); };
  if (!std::all_of(members.begin(), members.end(), is_member)) {
    const bool is_distributed = host_of_distributed_lock(members[0].text).has_value();
    return is_distributed ? std::optional(Kind{"semaphore", "DistributedLock"}) : std::nullopt;
  }
  const bool is_exclusive = std::any_of(members.begin(), members.end(), [](const Reply& member) {
    return member.text == "__write__";
  });
  return Kind{is_exclusive ? "lock" : "read lock", symfony_library, !is_exclusive};
}

std::optional<Kind> kind_of(const KeyLook& look) {
  if (look.type == "hash") return kind_of_hash(look);
  if (look.type == "zset") return kind_of_sorted_set(look);
  const bool is_queue = look.type == "list" && look.name.starts_with("redisson_lock_queue:");
  return is_queue ? std::optional(Kind{"queue of a fair lock", "Redisson"}) : std::nullopt;
}

}  // namespace

Holder foreign_holder(std::string library, const Reply& pttl) {
  Holder holder;
  holder.library = std::move(library);
  if (pttl.integer >= 0) holder.lease_left = milliseconds(pttl.integer);
  holder.limit = exclusive;
  return holder;
}

std::optional<Holder> holder_in_string(std::string_view key, std::string_view value,
                                       const Reply& pttl) {
  Holder holder = foreign_holder("", pttl);
  if (value.starts_with("ADDED:")) {
    holder.library = "ShedLock";
    add_from_shedlock(holder, value);
  } else if (is_uuid(value)) {
    holder.library = library_of_uuid(key);
  } else if (const auto host = host_of_distributed_lock(value)) {
    holder.library = "DistributedLock";
    holder.who.host = *host;
  } else {
    const auto format =
        std::find_if(std::begin(value_formats), std::end(value_formats),
                     [&](const ValueFormat& each) { return has_format(key, value, each); });
    if (format == std::end(value_formats)) return std::nullopt;
    holder.library = format->library;
    const auto since =
        format->letters == lower_hex ? time_of_uuid1(std::string(value)) : std::nullopt;
    if (since) holder.library = "redis-py";
    if (since) holder.acquired_at = *since;
  }
  return holder;
}

Fields fields_of(const Reply& page) {
  Fields fields;
  if (!page.is_array(2)) return fields;
  const auto& items = page.items[1].items;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    fields.emplace_back(items[i].text, items[i + 1].text);
  }
  return fields;
}

bool is_redisson_owner(std::string_view field) {
  const auto colon = field.rfind(':');
  if (colon == std::string_view::npos) return false;
  std::string_view thread = field.substr(colon + 1);
  if (thread.starts_with('-')) thread.remove_prefix(1);
  return is_uuid(field.substr(0, colon)) && !thread.empty() &&
         is_made_of(thread, digits, thread.size());
}

bool is_symfony_member(std::string_view member) {
  return has_format("", member, {"", base64, 43, "="}) || is_made_of(member, base64url, 22) ||
         member == "__write__";
}

Request contents_request(const std::string& type, const std::string& name) {
  if (type == "string") return {"GETRANGE", name, "0", "199"};
  if (type == "hash") return {"HSCAN", name, "0", "COUNT", "4"};
  if (type == "list") return {"LLEN", name};
  return {"ZRANGE", name, "0", "1"};
}

std::optional<ForeignLock> foreign_lock(const KeyLook& look) {
  constexpr std::int64_t no_key = -2;
  if (look.pttl.is_error() || look.contents.is_error() || look.pttl.integer == no_key) {
    return std::nullopt;
  }
  if (look.type == "string") {
    auto holder = holder_in_string(look.name, look.contents.text, look.pttl);
    if (!holder) return std::nullopt;
    return ForeignLock{"lock", std::move(*holder)};
  }
  const auto kind = kind_of(look);
  if (!kind) return std::nullopt;
  ForeignLock lock{kind->name, foreign_holder(kind->library, look.pttl)};
  if (kind->is_shared) lock.holder.limit = no_limit;
  return lock;
}

std::vector<std::optional<ForeignLock>> foreign_locks(RedisTransport& servers,
                                                      const std::string& type,
                                                      const std::vector<std::string>& names,
                                                      const CallOptions& call_options) {
  if (names.empty()) return {};
  std::vector<Request> requests;
  for (const std::string& name : names) {
    requests.push_back({"PTTL", name});
    requests.push_back(contents_request(type, name));
  }
  const auto replies = servers.read(names, requests, call_options);
  std::vector<std::optional<ForeignLock>> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    found.push_back(foreign_lock({names[i], type, replies[2 * i], replies[2 * i + 1]}));
  }
  return found;
}

std::string what_is(RedisTransport& servers, const std::string& name,
                    const CallOptions& call_options) {
  const std::string type = servers.read({name}, {{"TYPE", name}}, call_options).front().text;
  const auto lock = foreign_locks(servers, type, {name}, call_options).front();
  const std::string seems =
      lock ? ", which looks like a " + lock->kind + " of " + lock->holder.library : "";
  return "it is a " + (type == "zset" ? "sorted set" : escaped(type)) + seems +
         ", and not a lock of this layout";
}

std::map<std::string, ForeignLock> all_foreign_locks(RedisTransport& servers,
                                                     const std::vector<std::string>& globs,
                                                     const std::string& own_prefix,
                                                     const CallOptions& call_options) {
  std::map<std::string, ForeignLock> found;
  servers.visit_all(call_options, [&](RedisClient& client) {
    for (const char* type : types_of_locks) {
      scan(client, {"TYPE", type}, call_options, [&](std::vector<std::string> names) {
        std::erase_if(names, [&](const std::string& name) {
          return name.starts_with(own_prefix) || !matches_any(name, globs);
        });
        const CallOptions one_page = at_most(silence_of_a_dead_server, call_options);
        const auto locks = foreign_locks(client, type, names, one_page);
        for (std::size_t i = 0; i < names.size(); ++i) {
          if (locks[i]) found.emplace(names[i], *locks[i]);
        }
      });
    }
  });
  return found;
}

}  // namespace dlock
