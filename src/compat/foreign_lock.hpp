#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lock/grant.hpp"
#include "redis/redis_client.hpp"

namespace dlock {

/// Another library's lock, as its key shows it.
struct ForeignLock {
  std::string kind;  ///< `lock`, `read lock`, `semaphore`...
  Holder holder;
};

/// A key, its type in the spelling of TYPE, and the replies to PTTL and contents_request().
struct KeyLook {
  std::string name;
  std::string type;
  Reply pttl;
  Reply contents;
};

/// A plain request for the part of a key of this type that identifies a lock: at most 200 bytes of
/// a string, or the first fields or members.
Request contents_request(const std::string& type, const std::string& name);

/// The lock that the key seems to be, if any.
std::optional<ForeignLock> foreign_lock(const KeyLook& look);

/// Looks at the keys `names` of one server, all of type `type`, in one round trip. The results are
/// in the same order; a key that does not look like a lock gives nothing.
std::vector<std::optional<ForeignLock>> foreign_locks(RedisTransport& servers,
                                                      const std::string& type,
                                                      const std::vector<std::string>& names,
                                                      const CallOptions& call_options);

/// The description for an error about a key of another kind, e.g. `it is a hash, which looks like a
/// lock of Redisson`.
std::string what_is(RedisTransport& servers, const std::string& name,
                    const CallOptions& call_options);

/// All foreign locks, by the full names of their keys, which match one of `globs` and do not begin
/// with `own_prefix`. Reads the keys in pages, so that the server is never blocked for long.
std::map<std::string, ForeignLock> all_foreign_locks(RedisTransport& servers,
                                                     const std::vector<std::string>& globs,
                                                     const std::string& own_prefix,
                                                     const CallOptions& call_options);

constexpr const char* redisson_library = "Redisson or dlock";
constexpr const char* symfony_library = "Symfony Lock or dlock";

/// A holder with the library and the rest of the lease (from PTTL): dlock knows no more.
Holder foreign_holder(std::string library, const Reply& pttl);

/// Finds the holder that `value`, a string or its first 200 bytes, names: its library, or several
/// with the same format, and the host and the time that some libraries write. Returns nothing if no
/// known library writes such a value.
std::optional<Holder> holder_in_string(std::string_view key, std::string_view value,
                                       const Reply& pttl = {});

/// The fields and values in a page of HSCAN.
using Fields = std::vector<std::pair<std::string, std::string>>;
Fields fields_of(const Reply& page);

/// Whether a field of a hash is the owner of a Redisson lock: a client id and a thread.
bool is_redisson_owner(std::string_view field);

/// Whether Symfony Lock or dlock has written this member of a sorted set.
bool is_symfony_member(std::string_view member);

}  // namespace dlock
