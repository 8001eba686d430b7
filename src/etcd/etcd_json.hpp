#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"

namespace dlock {

// The fields of etcd's requests and answers (api/etcdserverpb/rpc.proto). Bytes are base64, 64-bit
// numbers are texts, and zero and false are omitted.

/// A key as etcd stores it.
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

/// A number, 0 if it is omitted.
std::int64_t number_in(const nlohmann::json& object, const char* name);
/// A number of seconds, 0 if it is omitted or negative; nothing if it is too large to calculate
/// with.
std::optional<milliseconds> span_in(const nlohmann::json& object, const char* name);
/// A text, cut to 1000 bytes; empty if it is omitted or is no text.
std::string text_of(const nlohmann::json& object, const char* name);
/// Whether the field exists and is true.
bool is_true(const nlohmann::json& object, const char* name);
/// The revision of the whole store, from the header of an answer.
std::int64_t revision_in(const nlohmann::json& answer);
EtcdRange range_in(const nlohmann::json& answer);
/// The part `name`, e.g. `response_range`, of the answer to operation `index` of a transaction.
const nlohmann::json& part_of(const nlohmann::json& answer, std::size_t index, const char* name);

/// The range of keys from `from` up to, but not including, `end`.
nlohmann::json range_fields(std::string_view from, std::string_view end);
/// The first name after all names that begin with `prefix`.
std::string end_of_prefix(std::string_view prefix);

nlohmann::json put_operation(std::string_view key, std::string_view value);
nlohmann::json delete_operation(std::string_view key);

/// A change that a watch reports.
struct EtcdEvent {
  std::string key;
  std::string value;
  std::int64_t revision = 0;
  bool deleted = false;
};
std::vector<EtcdEvent> events_in(const nlohmann::json& answer);

}  // namespace dlock
