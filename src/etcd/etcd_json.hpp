#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"

namespace dlock {

// The fields of etcd's requests and answers (api/etcdserverpb/rpc.proto). Bytes are base64, numbers
// of 64 bits are texts, and what is zero or false is left out.

/// A key as it is stored.
struct EtcdEntry {
  std::string key;
  std::string value;
  std::int64_t lease = 0;
  std::int64_t version = 0;  ///< the revision of its last change
};

struct EtcdRange {
  std::vector<EtcdEntry> entries;
  bool more = false;
  std::int64_t count = 0;
};

/// A number, 0 if it is left out.
std::int64_t number_in(const nlohmann::json& object, const char* name);
/// A number of seconds, 0 if it is left out or negative; nothing if it is more than can be reckoned
/// with.
std::optional<milliseconds> span_in(const nlohmann::json& object, const char* name);
/// A text, of which more than a sentence is cut off; empty if it is left out or is none.
std::string text_of(const nlohmann::json& object, const char* name);
/// Whether it is there, and true.
bool is_true(const nlohmann::json& object, const char* name);
/// The revision of the whole store, from the header of an answer.
std::int64_t revision_in(const nlohmann::json& answer);
EtcdRange range_in(const nlohmann::json& answer);
/// The part of an answer to a transaction that its operation `index` has, as `response_range`.
const nlohmann::json& part_of(const nlohmann::json& answer, std::size_t index, const char* name);

/// The range of keys from `from` up to, and without, `end`.
nlohmann::json range_fields(std::string_view from, std::string_view end);
/// The first name after all those that begin with `prefix`.
std::string end_of_prefix(std::string_view prefix);

nlohmann::json put_operation(std::string_view key, std::string_view value);
nlohmann::json delete_operation(std::string_view key);

/// A change that a watch tells of.
struct EtcdEvent {
  std::string key;
  std::string value;
  std::int64_t revision = 0;
  bool deleted = false;
};
std::vector<EtcdEvent> events_in(const nlohmann::json& answer);

}  // namespace dlock
